// Curves of a run: what it reports, what its ranks use, how long steps take, who is slow.
import { get, runPath } from "../lib/api.js"
import { Chart, Histogram, Spark } from "../lib/charts.js"
import { bytes, capital, percent, plural, seconds, span, value } from "../lib/format.js"
import { html, useMemo, useState } from "../lib/html.js"
import { Card, Icon, Note, Seg, Select, useLoad, useTick } from "../lib/parts.js"
import { setQuery } from "../lib/router.js"

const LIVE_MS = 5000 // trainers report every few seconds; a chart needs no more
const MANY = 64 // from here on single charts of ranks say less than a strip of all
const MOST = 8
const CHARTS = 4 // metrics drawn at once; the others are chosen

const first = (names) => [...names].sort((a, b) => Number(b === "loss") - Number(a === "loss") || Number(b.includes("loss")) - Number(a.includes("loss")) || a.localeCompare(b))

function Metric({ name, points, byStep, marks, log }) {
  const { data, last } = useMemo(() => {
    const sorted = byStep ? [...points].sort((a, b) => a[0] - b[0]) : points
    const places = sorted.map((point) => [byStep ? point[0] : point[1], point[2]])
    // Between two attempts nothing was reported: a gap is a gap.
    if (!byStep) for (const { at } of marks) if (places.some(([x]) => x < at) && places.some(([x]) => x > at)) places.push([at, null])
    places.sort((a, b) => a[0] - b[0])
    return { data: [places.map(([x]) => x), places.map(([, y]) => y)], last: points[points.length - 1] }
  }, [points, byStep, JSON.stringify(marks)])
  const label = `${name} over ${byStep ? "steps" : "time"}: from ${value(points[0][2])} to ${value(last[2])} in ${plural(points.length, "point")}`
  return html`<${Card} id=${`metric-${name}`} title=${name}><div class="body"><${Chart} data=${data} series=${[{ title: name, dash: [] }]} label=${label} time=${!byStep} log=${log} marks=${byStep ? [] : marks} /></div></${Card}>`
}

const UNITS = { gpu: percent, gpu_memory: bytes, memory: bytes, cpu: value, gpu_power: (x) => `${value(x)} W`, gpu_temperature: (x) => `${value(x)} C`, disk_read: (x) => `${bytes(x)}/s`, disk_write: (x) => `${bytes(x)}/s` }
const TITLES = { gpu: "GPU", gpu_memory: "GPU memory", memory: "memory", cpu: "CPU cores", gpu_power: "power", gpu_temperature: "temperature", disk_read: "disk read", disk_write: "disk write", steps_per_s: "steps/s" }
const ORDER = ["gpu", "cpu", "memory", "gpu_memory", "gpu_power", "gpu_temperature", "steps_per_s", "disk_read", "disk_write"]

function Rank({ number, points, low, high, measure, slowness }) {
  const slow = slowness > 1.15
  const last = points?.length ? points[points.length - 1][1] : null
  const format = UNITS[measure] || value
  return html`<li><button class=${`rank${slow ? " slow" : ""}`} onClick=${() => setQuery({ rank: number, show: "log" }, { push: true })} aria-label=${`Rank ${number}: ${TITLES[measure] || measure} ${last === null ? "unknown" : format(last)}${slow ? `, slow: ${value(slowness)} times the median step` : ""}. Show its log`}>
    <span class="t"><b>${slow && html`<${Icon} name="warning" />`}rank ${number}</b><span>${last === null ? "-" : format(last)}</span></span>
    <${Spark} points=${points} low=${low} high=${high} />
    <span class="m">${slowness ? `${slowness.toFixed(2)}x step` : "-"}</span>
  </button></li>`
}

/** One column for each rank: the darker, the more. */
function Strip({ ranks, lasts, low, high, measure }) {
  return html`<svg class="strip" viewBox=${`0 0 ${ranks.length} 10`} preserveAspectRatio="none" role="img" aria-label=${`${TITLES[measure] || measure} of ${ranks.length} ranks, one column each`}>
    ${ranks.map((rank, at) => html`<rect x=${at} y="0" width="1" height="10" style=${{ opacity: lasts[at] === null ? 0 : 0.12 + (0.88 * (lasts[at] - low)) / (high - low || 1) }}><title>rank ${rank}: ${(UNITS[measure] || value)(lasts[at])}</title></rect>`)}
  </svg>`
}

function Ranks({ system, times }) {
  const ranks = Object.keys(system).map(Number).sort((a, b) => a - b)
  const measures = useMemo(() => {
    const names = new Set(ranks.flatMap((rank) => Object.keys(system[rank]).filter((name) => system[rank][name].length)))
    return [...names].sort((a, b) => (ORDER.indexOf(a) + 100) % 100 - (ORDER.indexOf(b) + 100) % 100)
  }, [system])
  const [chosen, setChosen] = useState("")
  const measure = measures.includes(chosen) ? chosen : measures[0]
  if (!measure) return null
  const values = ranks.flatMap((rank) => (system[rank][measure] || []).map((point) => point[1]).filter((x) => x !== null))
  const high = measure === "gpu" ? 100 : values.reduce((most, given) => Math.max(most, given), 1e-9)
  const slowness = (rank) => times?.[rank]?.slowness
  const lasts = ranks.map((rank) => system[rank][measure]?.at(-1)?.[1] ?? null)
  const shown = ranks.length <= MANY ? ranks : [...ranks].sort((a, b) => (slowness(b) || 0) - (slowness(a) || 0)).slice(0, 2 * MOST)
  const tools = html`<${Select} label="Measure" chosen=${measure} onChoose=${setChosen} options=${measures.map((name) => [name, TITLES[name] || name])} />`
  return html`<${Card} id="ranks" title="Ranks" sub=${`${TITLES[measure] || measure}, the same scale in all${ranks.length > MANY ? `; the ${shown.length} slowest of ${ranks.length}` : ""}`} end=${tools}>
    <div class="body">
      ${ranks.length > MANY && html`<${Strip} ranks=${ranks} lasts=${lasts} low=${0} high=${high} measure=${measure} />`}
      <ul class="ranks" style=${{ "--ranks": Math.max(4, Math.min(8, shown.length)) }}>${shown.map((rank) => html`<${Rank} key=${rank} number=${rank} points=${system[rank][measure]} low=${0} high=${high} measure=${measure} slowness=${slowness(rank)} />`)}</ul>
    </div>
  </${Card}>`
}

function StepTimes({ times }) {
  const ranks = Object.keys(times)
  const all = ranks.flatMap((rank) => times[rank].values || []).filter((given) => given !== null)
  if (all.length < 5) return null
  const sorted = [...all].sort((a, b) => a - b)
  const at = (share) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))]
  const label = `Step times: median ${span(at(0.5))}, 90% below ${span(at(0.9))}, longest ${span(sorted[sorted.length - 1])}`
  return html`<${Card} id="steps" title="Step time" sub=${`median ${span(at(0.5))}, 90% below ${span(at(0.9))}, longest ${span(sorted[sorted.length - 1])}`}>
    <div class="body"><${Histogram} values=${all} mark=${at(0.5)} label=${label} /></div>
  </${Card}>`
}

const about = (text) => text.split(": ")[0] // its figures change with every look
/** `said`: findings that the page tells already. */
export function Curves({ cluster, id, ended, said = [] }) {
  const { data, reload } = useLoad(() => get(`${runPath(cluster, id)}/metrics`), [cluster, id])
  useTick(reload, LIVE_MS, !ended)
  const [byStep, setByStep] = useState(false)
  const [log, setLog] = useState(false)
  const [more, setMore] = useState(false)
  if (!data) return html`<div class="pair charts-wait" aria-busy="true"></div>`
  const names = first(Object.keys(data.series || {}).filter((name) => data.series[name].length > 1))
  const marks = (data.attempts || []).filter((attempt) => attempt.number > 1).map((attempt) => ({ at: seconds(attempt.started), title: `attempt ${attempt.number}` }))
  const shown = more ? names : names.slice(0, CHARTS)
  return html`${(data.stragglers || []).filter((text) => !said.some((each) => about(each) === about(text))).map((text) => html`<${Note} kind="warn" icon="warning">${capital(text)}</${Note}>`)}
    ${names.length > 0 && html`<div class="tools">
        <${Seg} label="Over" options=${[["time", "time"], ["step", "step"]]} chosen=${byStep ? "step" : "time"} onChoose=${(given) => setByStep(given === "step")} />
        <${Seg} label="Scale" options=${[["linear", "linear"], ["log", "log"]]} chosen=${log ? "log" : "linear"} onChoose=${(given) => setLog(given === "log")} />
        ${names.length > CHARTS && html`<button class="btn plain" onClick=${() => setMore(!more)}>${more ? "Fewer" : `${names.length - CHARTS} more`}</button>`}
      </div>
      <div class=${shown.length > 1 ? "pair" : ""}>${shown.map((name) => html`<${Metric} key=${name} name=${name} points=${data.series[name]} byStep=${byStep} marks=${marks} log=${log && data.series[name].every((point) => point[2] === null || point[2] > 0)} />`)}</div>`}
    <${Ranks} system=${data.system || {}} times=${data.step_times} />
    <${StepTimes} times=${data.step_times || {}} />`
}
