// The address: `#/runs?phase=failed`. Filters, rank, attempt and zoom are in it, so back works and a link shows the same.
import { useEffect, useState } from "./html.js"

export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?")
  return { parts: path.split("/").filter(Boolean).map(safeDecode), query: new URLSearchParams(query) }
}

function safeDecode(text) {
  try {
    return decodeURIComponent(text)
  } catch {
    return text // somebody typed a lone %
  }
}

export const href = (parts, query = {}) => {
  const pairs = new URLSearchParams(Object.entries(query).filter(([, given]) => given !== "" && given !== null && given !== undefined))
  return `#/${parts.map(encodeURIComponent).join("/")}${pairs.size ? `?${pairs}` : ""}`
}
export const runHref = (row, query) => href(["run", row.cluster, row.id], query)
export const go = (to) => {
  location.hash = to
}

/** Changes some keys of the query. A filter replaces the entry of the history; what is opened makes a new one. */
export function setQuery(changes, { push = false } = {}) {
  const { parts, query } = parse(location.hash)
  for (const [key, given] of Object.entries(changes)) {
    if (given === "" || given === null || given === undefined) query.delete(key)
    else query.set(key, given)
  }
  const to = href(parts, Object.fromEntries(query))
  if (push) location.hash = to
  else {
    history.replaceState(null, "", to)
    dispatchEvent(new HashChangeEvent("hashchange"))
  }
}

export function useRoute() {
  const [hash, setHash] = useState(location.hash)
  useEffect(() => {
    const changed = () => setHash(location.hash)
    addEventListener("hashchange", changed)
    return () => removeEventListener("hashchange", changed)
  }, [])
  return parse(hash)
}
