// Rows of runs as a list: which are shown, in which order, in which groups, and what matters now. Nothing is drawn here.
import { plain, seconds, span, value } from "./format.js"

export const PHASES = ["running", "starting", "pending", "recovering", "failed", "succeeded", "stopped"]
const ATTENTION = ["warning", "recovering", "pending", "starting", "running", "failed", "stopped", "succeeded"]
const RANK = Object.fromEntries(ATTENTION.map((name, at) => [name, at]))

const texts = new WeakMap()
function textOf(row) {
  let text = texts.get(row)
  if (text === undefined) {
    const pairs = (fields) => Object.entries(fields || {}).map(([name, given]) => `${name}=${given}`)
    text = [row.name, row.owner, row.job, row.sweep, row.reason, row.command, row.cluster, ...(row.findings || []), ...pairs(row.labels), ...pairs(row.params)].filter(Boolean).join(" ").toLowerCase()
    texts.set(row, text)
  }
  return text
}

/** Labels that people gave; those of sweeps and of Longboat itself are shown elsewhere. */
export const ownLabels = (row) => Object.entries(row.labels || {}).filter(([name]) => !name.includes("longboat.dev/") && !["sweep", "sweep-uid", "trial"].includes(name)).map(([name, given]) => `${name}=${given}`)

/** The parameters of a run: what tells trials of one sweep apart. */
export const paramsOf = (row) => Object.entries(row.params || {}).map(([name, given]) => `${name} ${plain(given)}`)

export const needsAttention = (row) => Boolean(row.findings?.length) && (row.phase === "running" || row.phase === "starting")
const attention = (row) => RANK[needsAttention(row) ? "warning" : row.phase] ?? ATTENTION.length
const newest = (a, b) => (a.created < b.created ? 1 : a.created > b.created ? -1 : a.name < b.name ? 1 : -1)
const number = (pick) => (a, b) => (pick(b) ?? -Infinity) - (pick(a) ?? -Infinity)
export const length = (row) => (row.started ? (seconds(row.ended) ?? Date.now() / 1000) - seconds(row.started) : null)

/** Of a run that goes on, its GPUs for the time since it started. */
export const gpuHours = (row) => row.gpu_hours ?? (row.gpus && row.started && !row.ended ? (row.gpus * length(row)) / 3600 : undefined)

const ORDERS = {
  attention: (a, b) => attention(a) - attention(b),
  newest,
  name: (a, b) => a.name.localeCompare(b.name, "en", { numeric: true }),
  phase: (a, b) => PHASES.indexOf(a.phase) - PHASES.indexOf(b.phase),
  where: (a, b) => a.cluster.localeCompare(b.cluster) || (b.gpus || 0) - (a.gpus || 0),
  progress: number((row) => row.step),
  metric: number((row) => metric(row)?.[1]),
  cost: number(gpuHours),
  age: (a, b) => (a.created < b.created ? -1 : a.created > b.created ? 1 : 0),
}

/** The first metric that a run reports: the loss if it has one. */
export function metric(row) {
  const names = Object.keys(row.metrics || {})
  if (!names.length) return null
  const name = names.find((candidate) => candidate === "loss") || names.find((candidate) => candidate.includes("loss")) || names[0]
  return [name, row.metrics[name]]
}

export function filtered(rows, { q = "", phase = "", place = "", person = "", label = "" }) {
  const words = q.toLowerCase().split(/\s+/).filter(Boolean)
  const [labelName, labelValue] = label.split("=")
  return rows.filter(
    (row) =>
      (!phase || row.phase === phase) &&
      (!place || row.cluster === place) &&
      (!person || row.owner === person) &&
      (!label || (row.labels && labelName in row.labels && (labelValue === undefined || row.labels[labelName] === labelValue))) &&
      words.every((word) => textOf(row).includes(word)),
  )
}

export function ordered(rows, order = "attention", direction = "") {
  const compare = ORDERS[order] || ORDERS.attention
  const sign = direction === "up" ? -1 : 1
  return [...rows].sort((a, b) => sign * compare(a, b) || newest(a, b))
}

const GROUPS = {
  sweep: (row) => row.sweep && `${row.cluster}/${row.sweep}`,
  place: (row) => row.cluster,
  person: (row) => row.owner,
}

/** Groups in the order of their first row: [{name, rows}]; name "" is what belongs to none. */
export function grouped(rows, by) {
  const pick = GROUPS[by]
  if (!pick) return [{ name: null, rows }]
  const groups = new Map()
  for (const row of rows) {
    const name = pick(row) || ""
    const group = groups.get(name)
    if (group) group.push(row)
    else groups.set(name, [row])
  }
  if (groups.size === 1 && groups.has("")) return [{ name: null, rows }]
  return [...groups].map(([name, members]) => ({ name, rows: members })).sort((a, b) => (a.name === "" ? -1 : b.name === "" ? 1 : 0))
}

/** What matters now: {fact, next, warns}. The words are the engine's own. */
export function matters(row) {
  if (needsAttention(row)) return { fact: row.findings[0], next: row.findings.length > 1 ? `and ${row.findings.length - 1} more` : "", warns: true }
  if (row.reason) {
    const at = row.reason.indexOf("; ")
    return at < 0 ? { fact: row.reason, next: "" } : { fact: row.reason.slice(0, at), next: row.reason.slice(at + 2) }
  }
  const shown = metric(row)?.[0] // it has a column of its own
  const measures = Object.entries(row.metrics || {}).filter(([name]) => name !== shown).slice(0, 3).map(([name, given]) => `${name} ${value(given)}`)
  if (row.phase === "running" && row.steps_per_s) measures.unshift(`${value(row.steps_per_s)} steps/s`)
  if (row.phase === "running" && row.checkpoint) measures.push(`newest checkpoint ${checkpointName(row)}`)
  return { fact: "", next: measures.join(", ") || (row.phase === "succeeded" && row.ended ? `Ended after ${span(length(row))}` : "") }
}

export const checkpointName = (row) => row.checkpoint.split("/").filter(Boolean).at(-1)

/** The line under a phase. */
export function underPhase(row) {
  if (row.phase === "pending") return `for ${span(Date.now() / 1000 - seconds(row.created))}`
  if (row.phase === "failed" && row.exit_code !== undefined && row.exit_code !== null) return `exit code ${row.exit_code}`
  if (row.phase === "succeeded") return `in ${span(length(row))}`
  if (row.phase === "stopped") return row.started ? `after ${span(length(row))}` : ""
  if (!row.attempt) return ""
  return row.retries ? `attempt ${row.attempt} of ${row.retries + 1}` : `attempt ${row.attempt}`
}

/** That runs can be listed and stopped lets none of them in. */
export const isAboutTheList = (step) => /^longboat (ps|stop)\b/.test(step)
