// Lines of a log as values: what is shown of them, how they are merged, which one failed first.
import { html } from "../lib/html.js"

const SHOWN = 2000 // characters of a line: longer ones cost time to draw and nobody reads them
/* eslint-disable no-control-regex */
const ESCAPES = /\u001b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\-_])/g
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g

/** A line as text: no escape sequences, what a bar drew last, other control characters as a sign. */
export function plain(text) {
  let shown = text.replace(ESCAPES, "")
  if (shown.includes("\r")) shown = shown.split("\r").filter(Boolean).pop() || ""
  shown = shown.replace(CONTROLS, "\ufffd")
  return shown.length > SHOWN ? `${shown.slice(0, SHOWN)} ... ${shown.length - SHOWN} more characters` : shown
}

/** The text with what was searched marked: pieces, never HTML. */
export function highlight(text, words) {
  if (!words) return text
  const pieces = []
  const lower = text.toLowerCase()
  const wanted = words.toLowerCase()
  let at = 0
  for (let hit = lower.indexOf(wanted); hit >= 0; hit = lower.indexOf(wanted, at)) {
    pieces.push(text.slice(at, hit), html`<mark>${text.slice(hit, hit + wanted.length)}</mark>`)
    at = hit + wanted.length
  }
  pieces.push(text.slice(at))
  return pieces
}

export function level(line) {
  if (line.stream === "out") return /^\W*(ERROR|FATAL|CRITICAL)\b/.test(line.text) ? "E" : /^\W*(WARN|WARNING)\b/.test(line.text) ? "W" : ""
  if (/^(Traceback \(|\w+(\.\w+)*(Error|Exception|Interrupt)\b)|\b(ERROR|FATAL|CRITICAL)\b/.test(line.text)) return "E"
  return /\b(WARN|WARNING|\w+Warning)\b/.test(line.text) ? "W" : ""
}

export const sameLine = (a, b) => a.time === b.time && a.rank === b.rank && a.node === b.node && a.attempt === b.attempt && a.text === b.text
const name = (line) => `${line.time} ${line.attempt} ${line.node} ${line.rank} ${line.text}`

/** Two stretches of a log as one, in the order of time; a line that both have is there once. */
export function merge(earlier, later) {
  if (!earlier.length || !later.length) return earlier.length ? earlier : later
  const last = earlier[earlier.length - 1].time
  if (later[0].time > last) return [...earlier, ...later]
  const known = new Map()
  for (const line of earlier) known.set(name(line), (known.get(name(line)) || 0) + 1)
  const fresh = later.filter((line) => {
    const times = known.get(name(line)) || 0
    if (times) known.set(name(line), times - 1)
    return !times
  })
  return [...earlier, ...fresh].map((line, at) => [line, at]).sort(([a, i], [b, j]) => a.attempt - b.attempt || (a.time < b.time ? -1 : a.time > b.time ? 1 : i - j)).map(([line]) => line)
}

/** What `explain` names, not the first line with "error". */
export function firstFailure(status) {
  const failed = (status.attempts || []).filter((attempt) => attempt.failure)
  const attempt = failed[failed.length - 1]
  if (!attempt) return null
  const { rank, message } = attempt.failure
  const time = rank?.ended || attempt.ended
  if (!rank || !time) return null
  return { rank: rank.rank, attempt: attempt.number, message: rank.message || message, time: new Date(Date.parse(time) + 1000).toISOString() }
}
