// Before the first paint: the reader's own theme, so that the page never flashes in the other one.
try {
  document.documentElement.dataset.theme = localStorage.getItem("theme") || ""
} catch {
  // storage is closed to this page: the system's theme holds
}
