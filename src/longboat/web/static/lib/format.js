// Numbers, spans, moments and sizes as people read them. Unknown is "-".

const DAY_S = 86400
export const seconds = (iso) => (typeof iso === "number" ? iso : iso ? Date.parse(iso) / 1000 : null)
export const now = () => Date.now() / 1000

/** "9 h 47 m": two units at most, none invented. */
export function span(s) {
  if (s === null || s === undefined || Number.isNaN(s)) return "-"
  if (s < 0) s = 0
  if (s < 1) return `${Math.round(s * 1000)} ms`
  if (s < 10) return `${+s.toFixed(1)} s`
  if (s < 60) return `${Math.floor(s)} s`
  const pad = (n) => String(Math.floor(n)).padStart(2, "0")
  if (s < 3600) return `${Math.floor(s / 60)} m ${pad(s % 60)} s`
  if (s < DAY_S) return `${Math.floor(s / 3600)} h ${pad((s % 3600) / 60)} m`
  return `${Math.floor(s / DAY_S)} d ${Math.floor((s % DAY_S) / 3600)} h`
}

/** Clock for today, date and clock before. */
export function clock(iso, { exact = false } = {}) {
  const at = seconds(iso)
  if (at === null) return "-"
  const moment = new Date(at * 1000)
  const two = (n) => String(n).padStart(2, "0")
  const time = `${two(moment.getHours())}:${two(moment.getMinutes())}${exact ? `:${two(moment.getSeconds())}` : ""}`
  if (moment.toDateString() === new Date().toDateString()) return time
  return `${moment.getFullYear()}-${two(moment.getMonth() + 1)}-${two(moment.getDate())} ${time}`
}

export const utc = (iso) => {
  const at = seconds(iso)
  return at === null ? "" : `${new Date(at * 1000).toISOString().replace("T", " ").slice(0, 19)} UTC`
}

export function logClock(iso) {
  const at = seconds(iso)
  if (at === null) return ""
  const moment = new Date(at * 1000)
  const pad = (n, width = 2) => String(n).padStart(width, "0")
  return `${pad(moment.getHours())}:${pad(moment.getMinutes())}:${pad(moment.getSeconds())}.${pad(moment.getMilliseconds(), 3)}`
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 })
export const count = (n) => (n === null || n === undefined ? "-" : whole.format(n))
export const plural = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`

/** A measured value with four significant digits. */
export function value(x) {
  if (x === null || x === undefined) return "-"
  if (typeof x !== "number") return String(x)
  if (!Number.isFinite(x)) return String(x)
  if (Number.isInteger(x) && Math.abs(x) < 1e9) return whole.format(x)
  const size = Math.abs(x)
  if (size !== 0 && (size < 1e-3 || size >= 1e9)) return x.toExponential(2).replace(/\.?0*e\+?/, "e")
  if (size >= 1000) return whole.format(x)
  return String(+x.toPrecision(4))
}

/** A parameter as it would be typed: no thousands set apart, six digits of what was drawn. */
export const plain = (x) => (typeof x === "number" && !Number.isInteger(x) ? String(+x.toPrecision(6)) : String(x ?? "-"))

export const hours = (x) => (x === null || x === undefined ? "-" : x < 10 ? x.toFixed(2) : x < 1000 ? x.toFixed(1) : whole.format(x))
export const percent = (x) => (x === null || x === undefined ? "-" : `${Math.round(x)}%`)
let currency = "USD"
export const setCurrency = (code) => (currency = code || currency)
/** Money in the currency of the settings; one that nobody knows stands behind. */
export function money(x) {
  if (x === null || x === undefined) return "-"
  const digits = x < 1000 ? 2 : 0
  const shown = { minimumFractionDigits: digits, maximumFractionDigits: digits }
  try {
    return x.toLocaleString("en", { style: "currency", currency, ...shown })
  } catch {
    return `${x.toLocaleString("en", shown)} ${currency}`
  }
}

export function bytes(n) {
  if (n === null || n === undefined) return "-"
  for (const unit of ["B", "kB", "MB", "GB", "TB"]) {
    if (n < 1000 || unit === "TB") return `${unit === "B" || n >= 100 ? Math.round(n) : n.toFixed(1)} ${unit}`
    n /= 1000
  }
  return "-"
}

/** A sentence begins with a capital; the name of a node or a key stays as it is. */
export const capital = (text) => (/^[a-z]+([\s:;,.]|$)/.test(text || "") ? text[0].toUpperCase() + text.slice(1) : text)
