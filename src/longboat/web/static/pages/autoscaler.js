// Demand against capacity, pools, decisions with their reasons, cost; and what other settings would have cost.
import { get, post } from "../lib/api.js"
import { Chart } from "../lib/charts.js"
import { capital, clock, count, hours, money, now, plural, seconds, span, utc } from "../lib/format.js"
import { html, useEffect, useMemo, useState } from "../lib/html.js"
import { useKeys } from "../lib/keys.js"
import { Bar, Card, Command, Empty, Icon, LeftOut, Loading, Note, Problem, Seg, Select, complain, toast, useLoad, useTick } from "../lib/parts.js"
import { setQuery } from "../lib/router.js"
import { clusterTitle, useStore } from "../lib/store.js"
import { useRows } from "./table_keys.js"

const REFRESH_MS = 3000
const ASK_MS = 250 // after the last move of a slider
/** An area is read from its ground. */
const fromZero = (_, low, high) => [0, 1.08 * (high || 1)]
const RANGES = { "6 h": 6 * 3600, "24 h": 24 * 3600, "7 d": 7 * 24 * 3600 }
/** The sign of a decision, from what it says before its reason. */
function signOf({ text, trouble }) {
  if (trouble) return ["warning", "warn"] // it is tried again
  const deed = text.split(": ")[0]
  if (/\btaint/.test(deed)) return ["cordon", "soft"]
  if (/\b(grows|ordered)\b/.test(deed)) return ["up", "accent"]
  if (/\b(removed|shrinks|deleted|drained)\b/.test(deed) && !/cordoned/.test(deed)) return ["down", "soft"]
  return [/\bcordoned\b/.test(deed) ? "cordon" : "keep", "soft"]
}

function Demand({ history }) {
  const [range, setRange] = useState("24 h")
  const shown = useMemo(() => history.filter((point) => seconds(point.time) > now() - RANGES[range]), [history, range])
  const data = useMemo(() => [shown.map((point) => seconds(point.time)), shown.map((point) => point.demand), shown.map((point) => point.capacity), shown.map((point) => point.waiting || null)], [shown])
  const tools = html`<${Seg} label="Range" chosen=${range} onChoose=${setRange} options=${Object.keys(RANGES).map((name) => [name, name])} />`
  const peak = Math.max(0, ...shown.map((point) => point.demand))
  return html`<${Card} id="demand" title="Demand against capacity" sub="GPUs, since this dashboard started" end=${tools}><div class="body">
    ${shown.length < 2 ? html`<p class="muted chart-empty">A point every 30 s while somebody looks: the curve begins with the second one.</p>` : html`<${Chart} data=${data} stepped height=${210} range=${fromZero} series=${[{ title: "demand", dash: [], fill: true }, { title: "capacity", color: "text-2", dash: [6, 4] }, { title: "waiting", color: "warn", dash: [2, 2], isNow: true }]} label=${`Demand and capacity in GPUs: demand at most ${count(peak)}, now ${count(shown[shown.length - 1].demand)} against ${count(shown[shown.length - 1].capacity)}`} />`}
  </div></${Card}>`
}

const Pools = ({ pools, cost, priced = pools.some((pool) => pool.price) }) => html`<${Card} id="pools" title="Pools" sub=${`${plural(pools.reduce((sum, pool) => sum + (pool.size ?? pool.nodes ?? 0), 0), "machine")}${cost != null ? `, ${money(cost)} an hour` : ""}`}>
  <div class="scroll" tabindex="0" role="region" aria-label="Table of pools"><table class="grid pools"><thead><tr><th scope="col">Pool</th><th scope="col">Machines</th>${priced && html`<th scope="col" class="num">Price/h</th>`}<th scope="col">State</th></tr></thead>
  <tbody>${pools.map((pool) => {
    const size = pool.size ?? pool.nodes ?? 0
    const off = pool.blocked_until || pool.backoffs?.length
    return html`<tr key=${pool.pool || pool.name}><th scope="row"><b>${pool.name || pool.pool}</b><span class="small">${Object.entries(pool.states || {}).map(([state, number]) => `${number} ${state}`).join(", ")}</span></th>
      <td class="have">${count(size)}${pool.coming ? ` + ${count(pool.coming)}` : ""} ${pool.max != null && html`<span class="muted">of ${count(pool.max)}</span>`}${pool.max ? html`<${Bar} share=${(100 * size) / pool.max} />` : ""}</td>
      ${priced && html`<td class="num" data-label="price/h">${pool.price ? money(pool.price) : "-"}</td>`}
      <td><span class=${`act ${off ? "warn" : "ok"}`}><${Icon} name=${off ? "recovering" : "succeeded"} />${off ? "back-off" : "ok"}</span><span class="small">${capital(pool.reason || "")}${pool.blocked_until ? `; asked again ${clock(pool.blocked_until)}` : ""}</span></td></tr>`
  })}</tbody></table></div>
</${Card}>`

function Decisions({ decisions, selected }) {
  const [which, setWhich] = useState("all")
  const shown = decisions.filter((entry) => which === "all" || Boolean(entry.trouble)).slice(0, 200)
  const tools = html`<${Seg} label="Which" chosen=${which} onChoose=${setWhich} options=${[["all", "all"], ["trouble", "with trouble"]]} />`
  return html`<${Card} id="decisions" title="Decisions" sub="newest first" end=${tools}>
    ${!shown.length ? html`<div class="body"><p class="muted">${which === "all" ? "Nothing was decided yet." : "None met trouble."}</p></div>` : html`<table class="grid decisions"><thead><tr><th scope="col">Time</th><th scope="col">Decision and its reason</th></tr></thead>
    <tbody>${shown.map((entry, at) => {
      const [icon, tone] = signOf(entry)
      const { text } = entry
      return html`<tr key=${`${entry.time} ${text}`} aria-selected=${selected === at ? "true" : null}><td title=${utc(entry.time)}>${clock(entry.time, { exact: true })}</td><td class="r"><span class=${`act ${tone}`}><${Icon} name=${icon} /></span> ${capital(text)}${entry.trouble ? html`<span class="small warn">${capital(entry.trouble)}</span>` : ""}</td></tr>`
    })}</tbody></table>`}
  </${Card}>`
}

const minutes = (s) => (s % 60 ? span(s) : s % 3600 ? `${s / 60} m` : `${s / 3600} h`)
const SLIDERS = [
  ["idle_s", "Removed when idle for", 60, 3600, 60, minutes],
  ["spare", "Spare machines", 0, 8, 1, count],
  ["max", "Limit of machines", 1, 64, 1, count],
]
const FIGURES = [["cost", "Cost", money], ["wait_p50_s", "Median wait", span], ["wait_p99_s", "99% wait less than", span], ["gpu_hours", "GPU-h bought", hours], ["idle_gpu_hours", "GPU-h idle", hours]]

function WhatIf({ cluster }) {
  const [given, setGiven] = useState({})
  const [trace, setTrace] = useState(null)
  const [pools, setPools] = useState(null)
  const [answer, setAnswer] = useState(null)
  const [error, setError] = useState(null)
  const asked = Boolean(cluster || pools)
  useEffect(() => {
    if (!asked) return undefined
    let wanted = true
    const timer = setTimeout(async () => {
      try {
        const told = await post("simulate", { ...(cluster ? { cluster } : {}), ...(trace ? { trace: trace.text } : {}), ...(pools ? { pools: pools.text } : {}), ...given })
        if (wanted) [setAnswer(told), setError(null)]
      } catch (problem) {
        if (wanted) setError(problem)
      }
    }, ASK_MS)
    return () => {
      wanted = false
      clearTimeout(timer)
    }
  }, [JSON.stringify(given), trace, pools, cluster])
  const load = (set) => async (event) => {
    const [file] = event.target.files
    if (file) set({ name: file.name, text: await file.text() })
  }
  const line = answer?.after?.timeline
  const chart = useMemo(() => (line?.length > 1 ? [line.map((point) => point[0]), line.map((point) => point[1]), line.map((point) => point[2])] : null), [line])
  return html`<${Card} id="whatif" title="What if" sub="replays what was, changes nothing"><div class="body">
    ${SLIDERS.map(([name, title, low, high, step, format]) => html`<div class="slider" key=${name}><label for=${`if-${name}`}>${title}</label><output for=${`if-${name}`}>${given[name] === undefined ? `${answer?.settings?.[name] == null ? "" : `${format(answer.settings[name])}, `}as it is` : format(given[name])}</output>
      <input type="range" id=${`if-${name}`} min=${low} max=${high} step=${step} value=${given[name] ?? (answer?.settings?.[name] ?? (low + high) / 4)} onInput=${(event) => setGiven({ ...given, [name]: Number(event.target.value) })} /></div>`)}
    ${!asked && html`<p class="muted">Load pools: what they would cost with a trace of jobs is replayed here.</p>`}
    ${error && html`<p class=${error.status === 404 ? "muted" : "bad"} role="status">${capital(error.message)}.${error.hint ? ` ${capital(error.hint)}.` : ""}</p>`}
    ${answer && html`<table class="result"><thead><tr><th scope="col">${answer.trace ? `${trace?.name || answer.trace.name}, ${plural(answer.trace.jobs, "job")}` : "The trace"}</th><th scope="col" class="num">As it was</th><th scope="col" class="num">What if</th></tr></thead>
      <tbody aria-live="polite">${FIGURES.filter(([name]) => name !== "cost" || answer.before?.cost || answer.after?.cost).map(([name, title, format]) => html`<tr><th scope="row">${title}</th><td class="num">${format(answer.before?.[name])}</td><td class="num"><b>${format(answer.after?.[name])}</b></td></tr>`)}</tbody></table>`}
    ${chart && html`<${Chart} data=${chart} stepped time=${chart[0][0] > 1e8} ticks=${(at) => `${Math.round(at / 360) / 10} h`} height=${120} series=${[{ title: "demand", dash: [] }, { title: "capacity", color: "text-2", dash: [6, 4] }]} label="Demand and capacity with these settings" />`}
    <div class="acts-row"><button class="btn" disabled=${!Object.keys(given).length} onClick=${() => setGiven({})}>Reset</button><label class="btn file">Load a trace<input class="sr" type="file" accept=".csv" onChange=${load(setTrace)} /></label>
      <button class="btn" onClick=${() => setTrace({ name: "generated", text: "generate:philly" })}>Use an example</button><label class="btn file">Load pools<input class="sr" type="file" accept=".yaml,.yml" onChange=${load(setPools)} /></label></div>
    <div class="gap-above"><${Command} text="longboat autoscaler simulate TRACE --pools pools.yaml" /></div>
  </div></${Card}>`
}

/** Have pools that are off or in back-off asked again at once: nothing is bought that was not wanted. */
async function retryPools(cluster) {
  try {
    const { retried } = await post(`autoscaler/${encodeURIComponent(cluster.name)}/retry`)
    toast(retried.length ? `${retried.join(", ")}: asked again with the next turn` : "No pool is in back-off", { icon: retried.length ? "succeeded" : "info" })
  } catch (error) {
    complain(error)
  }
}

export default function Autoscaler({ route }) {
  const { me } = useStore()
  const { data, error, reload } = useLoad(() => get("autoscaler"), [])
  useTick(reload, REFRESH_MS)
  const all = data?.clusters || []
  const chosen = all.find((cluster) => cluster.name === route.query.get("cluster")) || all[0]
  const rows = useRows("Autoscaler", "decision", chosen?.decisions?.length || 0)
  const retry = () => (!chosen ? null : me?.readonly ? toast("This dashboard is read-only", { icon: "info" }) : retryPools(chosen))
  const whatIf = () => document.querySelector("#whatif input")?.focus()
  useKeys("What if", [
    { keys: ["w"], label: "what if", hint: "what if", run: whatIf },
    { keys: ["r"], label: "retry pools that are off or in back-off", hint: chosen && "retry pools", run: retry },
  ])
  if (!data) return html`<div class="head"><h1>Autoscaler</h1></div>${error ? html`<${Problem} error=${error} retry=${reload} />` : html`<${Loading} what="the autoscaler" />`}`
  if (!chosen) {
    return html`<div class="head"><h1>Autoscaler</h1></div><div class="as-cols"><${Empty} title="No cluster here has an autoscaler"><p class="soft">It buys machines when runs wait and gives them back when nobody needs them.</p><${Command} text="longboat install --autoscaler pools.yaml" /></${Empty}><aside class="stack" aria-label="What if"><${WhatIf} /></aside></div>`
  }
  return html`<div class="head"><h1>Autoscaler</h1>${all.length > 1 ? html`<${Select} label="Cluster" chosen=${chosen.name} onChoose=${(cluster) => setQuery({ cluster })} options=${all.map((cluster) => [cluster.name, clusterTitle(cluster.name)])} />` : html`<p>${clusterTitle(chosen.name)}</p>`}
      <p class="muted">${[chosen.seen && `last turn ${span(now() - seconds(chosen.seen))} ago`, chosen.waiting_count > 0 && `${plural(chosen.waiting_count, "pod")} waiting`].filter(Boolean).join("; ")}</p>
      <div class="end"><button class="btn" onClick=${whatIf}>What if</button>${!me?.readonly && html`<button class="btn" onClick=${retry}>Retry pools</button>`}</div></div>
    <${LeftOut} error=${error} retry=${reload} />
    ${!chosen.ok && chosen.error && html`<div class="banners"><${Problem} error=${{ message: chosen.error }} /></div>`}
    ${chosen.warnings?.length > 0 && html`<div class="banners">${chosen.warnings.map((text) => html`<${Note} kind="warn" icon="warning" key=${text}>${capital(text)}</${Note}>`)}</div>`}
    <div class="as-cols"><div class="stack">
      <${Demand} history=${chosen.history || []} />
      ${chosen.pools?.length > 0 && html`<${Pools} pools=${chosen.pools} cost=${chosen.cost_per_hour} />`}
      <${Decisions} decisions=${chosen.decisions || []} selected=${rows.selected} />
    </div>
    <aside class="stack" aria-label="Cost and what if">
      ${chosen.cost_per_hour != null && html`<${Card} id="cost" title="Cost"><div class="body"><dl class="figures"><div><dt>Now</dt><dd>${money(chosen.cost_per_hour)}<small> /h</small></dd></div></dl></div></${Card}>`}
      <${WhatIf} cluster=${chosen.name} />
      ${chosen.command && html`<${Card} id="cli" title="On the command line"><div class="body"><${Command} text=${chosen.command} /></div></${Card}>`}
    </aside></div>`
}
