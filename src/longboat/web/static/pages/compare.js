// Chosen runs side by side: figures, what differs in their jobs, metrics at equal steps, code.
import { get, search } from "../lib/api.js"
import { COLORS, Chart } from "../lib/charts.js"
import { count, hours, money, plain, plural, span, value } from "../lib/format.js"
import { html, useMemo, useState } from "../lib/html.js"
import { Card, Command, Empty, Loading, Phase, Problem, Select, useLoad } from "../lib/parts.js"
import { href } from "../lib/router.js"
import { placed, useStore } from "../lib/store.js"

const TITLES = { phase: "Phase", seconds: "Took", gpu_hours: "GPU-h", attempts: "Attempts", exit_code: "Exit code", step: "Step", cost: "Cost", gpu_kwh: "Energy, kWh", image: "Image", python: "Python", packages: "Packages", gpu_type: "GPUs", driver: "Driver" }
const SHOWN = { gpu_kwh: value, phase: (given) => html`<${Phase} phase=${given} />`, seconds: span, gpu_hours: hours, attempts: count, step: count, cost: money, exit_code: (given) => given ?? "-" }
/** A word of a command as a shell takes it. */
const word = (given) => (/^[\w@%+=:,./-]+$/.test(given) ? given : `'${String(given).replace(/'/g, `'"'"'`)}'`)
const shown = (given) => (given === null || given === undefined ? html`<span class="muted">-</span>` : typeof given === "number" ? plain(given) : Array.isArray(given) ? given.map(word).join(" ") : typeof given === "object" ? JSON.stringify(given) : String(given))

function Figures({ data }) {
  const heads = data.ids.map((id, at) => {
    const cut = id.indexOf("/")
    return html`<th scope="col"><span class=${`sw ${at ? "dash" : "ln"} s${at % COLORS.length}`}></span><a class="name" href=${href(["run", id.slice(0, cut), id.slice(cut + 1)])}>${data.runs[at]}</a></th>`
  })
  const rows = (entries, format) => entries.map(([name, values]) => html`<tr key=${name}><th scope="row">${TITLES[name] || name}</th>${values.map((given) => html`<td>${(format?.[name] || shown)(given)}</td>`)}</tr>`)
  const differing = Object.entries(data.differing || {})
  const environment = Object.entries(data.environment || {})
  const packages = Object.entries(data.packages || {})
  return html`<${Card} id="figures" title="Side by side"><div class="scroll" tabindex="0" role="region" aria-label="Runs side by side"><table class="grid compare">
    <thead><tr><th scope="col"><span class="sr">Of each run</span></th>${heads}</tr></thead>
    <tbody>${rows(Object.entries(data.figures || {}).filter(([, values]) => values.some((given) => given !== null)), SHOWN)}</tbody>
    ${differing.length > 0 && html`<tbody><tr class="part"><th scope="rowgroup" colspan=${data.ids.length + 1}>What differs in the job</th></tr>${rows(differing)}</tbody>`}
    ${environment.length > 0 && html`<tbody><tr class="part"><th scope="rowgroup" colspan=${data.ids.length + 1}>What they ran in</th></tr>${rows(environment)}</tbody>`}
    ${packages.length > 0 && html`<tbody><tr class="part"><th scope="rowgroup" colspan=${data.ids.length + 1}>Packages whose versions differ</th></tr>${rows(packages)}</tbody>`}
    ${data.metrics?.length > 0 && html`<tbody><tr class="part"><th scope="rowgroup" colspan=${data.ids.length + 1}>Metrics, at the last step that all have reached, and at the end</th></tr>
      ${data.metrics.map((row) => html`<tr key=${row.name}><th scope="row">${row.name}<span class="small">${row.step === null ? "at the end" : `step ${count(row.step)}`}</span></th>${row.last.map((last, at) => html`<td>${value(row.step === null ? last : row.at_step[at])}${row.step !== null && html`<span class="small">${value(last)} at the end</span>`}</td>`)}</tr>`)}</tbody>`}
  </table></div></${Card}>`
}

/** Columns for uPlot: all steps of all runs, null where a run has no point. */
function columns(curves) {
  const steps = [...new Set(curves.flatMap((points) => points.map(([step]) => step)))].sort((a, b) => a - b)
  const at = new Map(steps.map((step, index) => [step, index]))
  const dense = curves.map((points) => {
    const column = new Array(steps.length).fill(undefined) // undefined: no point, the line goes on
    for (const [step, given] of points) column[at.get(step)] = given
    return column
  })
  return [steps, ...dense]
}

function Curves({ data }) {
  const names = Object.keys(data.curves || {}).sort((a, b) => b.includes("loss") - a.includes("loss"))
  const [chosen, setChosen] = useState("")
  const name = names.includes(chosen) ? chosen : names[0]
  const plot = useMemo(() => (name ? columns(data.curves[name]) : null), [data, name])
  if (!plot || plot[0].length < 2) return null
  const tools = names.length > 1 && html`<${Select} label="Metric" chosen=${name} onChoose=${setChosen} options=${names.map((each) => [each, each])} />`
  return html`<${Card} id="curves" title=${name} sub="over steps" end=${tools}><div class="body"><${Chart} data=${plot} time=${false} height=${260} series=${data.runs.map((run) => ({ title: run }))} label=${`${name} of ${plural(data.runs.length, "run")} over steps`} /></div></${Card}>`
}

const Code = ({ data }) => html`<${Card} id="code" title="Code" sub=${`against ${data.runs[0]}`}><ul class="list">${data.code.map((change) => {
  const parts = [["changed", change.changed], ["added", change.added], ["removed", change.removed]].filter(([, files]) => files?.length)
  return html`<li><div class="grow"><b>${change.run}</b><small>${!change.is_known ? "its code is not on this machine" : parts.length ? parts.map(([word, files]) => `${word}: ${files.join(", ")}`).join("; ") : "the same code"}</small>
    ${change.diff && html`<details><summary>Difference</summary><pre class="stacktrace diff" tabindex="0" role="region" aria-label=${`Difference of ${change.run}`}>${change.diff.split("\n").map((line) => html`<span class=${line.startsWith("+") ? "ok" : line.startsWith("-") ? "bad" : line.startsWith("@") ? "accent" : ""}>${line}\n</span>`)}</pre></details>`}</div></li>`
})}</ul></${Card}>`

export default function Compare({ route }) {
  useStore()
  const wanted = route.query.getAll("run")
  const { data, error, reload } = useLoad(() => (wanted.length > 1 ? get(`compare?${search({ run: wanted })}`) : Promise.resolve({ ids: [] })), [wanted.join()])
  const head = html`<nav aria-label="Where you are"><ol class="crumbs"><li><a href="#/runs">Runs</a></li><li>Compare</li></ol></nav><div class="head"><h1>${wanted.length > 1 ? `${wanted.length} runs side by side` : "Compare"}</h1></div>`
  if (wanted.length < 2) return html`${head}<${Empty} title="Choose two runs or more"><p class="soft">In the list of runs, select with <kbd>x</kbd> or the boxes, then Compare.</p><p><a href="#/runs">All runs</a></p></${Empty}>`
  if (!data) return html`${head}${error ? html`<${Problem} error=${error} retry=${reload} />` : html`<${Loading} what="the comparison" />`}`
  const places = new Set(data.ids.map((id) => id.slice(0, id.indexOf("/")))) // the command compares runs of one place
  return html`${head}<div class="stack"><${Curves} data=${data} /><${Figures} data=${data} />${data.code?.length > 0 && html`<${Code} data=${data} />`}
    ${places.size === 1 && html`<${Card} id="cli" title="On the command line"><div class="body"><${Command} text=${placed([...places][0], `longboat compare ${data.runs.join(" ")}`)} /></div></${Card}>`}</div>`
}
