// One sweep: the best so far, what makes it better, every trial.
import { ask } from "../lib/actions.js"
import { get } from "../lib/api.js"
import { Chart } from "../lib/charts.js"
import { capital, clock, count, hours, money, now, percent, plain, plural, seconds, span, value } from "../lib/format.js"
import { html, useMemo, useState } from "../lib/html.js"
import { useKeys } from "../lib/keys.js"
import { Bar, Card, Command, LeftOut, Loading, Phase, Problem, Seg, toast, useLoad, useTick } from "../lib/parts.js"
import { go, href, setQuery } from "../lib/router.js"
import { gpuHours } from "../lib/rows.js"
import { clusterTitle, gpuHour, placed, run as rowOf, useStore } from "../lib/store.js"
import { Parallel } from "./parallel.js"
import { phaseOf, shownPhase } from "./sweeps.js"
import { useRows } from "./table_keys.js"

const REFRESH_MS = 3000
const MOST = 200 // rows at first: nobody reads a thousand, and each costs time to draw

/** Trials in the order of their metric, best first; those without one last. */
function ranked(trials, goal) {
  const sign = goal === "max" || goal === "maximize" ? -1 : 1
  return [...trials].sort((a, b) => (a.metric == null) - (b.metric == null) || sign * (a.metric - b.metric) || a.trial - b.trial)
}

function BestSoFar({ trials, goal, name }) {
  const points = useMemo(() => {
    const better = goal === "max" || goal === "maximize" ? Math.max : Math.min
    let best = null
    const ended = trials.filter((trial) => trial.ended && trial.metric != null).sort((a, b) => seconds(a.ended) - seconds(b.ended))
    return ended.map((trial) => [seconds(trial.ended), trial.metric, (best = best === null ? trial.metric : better(best, trial.metric))])
  }, [trials, goal])
  if (points.length < 2) return null
  const data = [points.map((point) => point[0]), points.map((point) => point[2])]
  return html`<${Card} id="best-curve" title="Best over time" sub=${name}><div class="body"><${Chart} data=${data} stepped height=${150} series=${[{ title: `best ${name}`, dash: [] }]} label=${`Best ${name} so far: from ${value(points[0][2])} to ${value(points[points.length - 1][2])} after ${points.length} trials`} /></div></${Card}>`
}

const Importance = ({ shares }) => html`<${Card} id="importance" title="What mattered" sub="share of the variance, each alone">
  <ul class="list">${Object.entries(shares).map(([name, share]) => html`<li><div class="grow">${name}<${Bar} share=${100 * share} /></div><span class="end">${percent(100 * share)}</span></li>`)}</ul>
</${Card}>`

function Trials({ sweep, trials, drawn, names, best, hide, selected, onAll }) {
  const early = trials.filter((trial) => shownPhase(trial) === "early").length
  const counts = [...new Set(trials.map(shownPhase))].map((phase) => `${count(trials.filter((trial) => shownPhase(trial) === phase).length)} ${phase === "early" ? "stopped early" : phase}`)
  const isNumber = (name) => trials.every((trial) => typeof trial.params[name] === "number")
  const tools = early > 0 && html`<${Seg} label="Which" chosen=${hide ? "less" : "all"} onChoose=${(given) => setQuery({ hide: given === "less" ? "1" : "" })} options=${[["all", "all"], ["less", "without stopped early"]]} />`
  return html`<${Card} id="trials" title="Trials" sub=${`${counts.join(", ")}; best first`} end=${tools}>
    <div class="scroll" tabindex="0" role="region" aria-label="Table of trials"><table class="grid trials">
      <thead><tr><th scope="col">Trial</th><th scope="col">Phase</th><th scope="col" class="num">${sweep.metric?.name || "Metric"}</th><th scope="col" class="num">Step</th>${names.map((name) => html`<th scope="col" class=${isNumber(name) ? "num" : ""}>${name}</th>`)}<th scope="col" class="num">Took</th><th scope="col">Why</th></tr></thead>
      <tbody>${drawn.map((trial, at) => {
        const phase = shownPhase(trial)
        return html`<tr key=${trial.trial} data-best=${best?.trial === trial.trial ? "" : null} class=${phase === "early" ? "cutoff" : ""} aria-selected=${selected === at ? "true" : null}>
          <th scope="row">${trial.run ? html`<a class="name" href=${href(["run", sweep.cluster, trial.run])}>${trial.run}</a>` : trial.trial}</th>
          <td><${Phase} phase=${phase} word=${phase === "early" ? "" : trial.phase} /></td><td class="num">${value(trial.metric)}</td><td class="num">${count(trial.step)}</td>
          ${names.map((name) => html`<td class=${isNumber(name) ? "num" : "words"} title=${isNumber(name) ? null : trial.params[name]}>${plain(trial.params[name])}</td>`)}
          <td class="num">${trial.started ? span((seconds(trial.ended) ?? now()) - seconds(trial.started)) : "-"}</td><td class="soft cut why-cell" title=${trial.reason}>${best?.trial === trial.trial ? (sweep.ended ? "best" : "best so far") : trial.reason || ""}</td>
        </tr>`
      })}</tbody>
    </table></div>
    ${drawn.length < trials.length && html`<div class="body foot">The best ${count(drawn.length)} of ${plural(trials.length, "trial")}. <button class="btn" onClick=${onAll}>Show all</button></div>`}
  </${Card}>`
}

/** Trials that go on with what their runs report now: the sweep notes it at their end. */
const withLive = (sweep) => ({
  ...sweep,
  trials: sweep.trials.map((trial) => {
    const row = trial.run && !trial.ended ? rowOf(sweep.cluster, trial.run) : null
    return row ? { ...trial, step: row.step ?? trial.step, metric: row.metrics?.[sweep.metric?.name] ?? trial.metric } : trial
  }),
})

export default function Sweep({ route }) {
  const { version, me } = useStore()
  const [, cluster, name] = route.parts
  const { data: kept, error, reload } = useLoad(() => get(`sweeps/${encodeURIComponent(cluster)}/${encodeURIComponent(name)}`), [cluster, name])
  const data = useMemo(() => (kept && !kept.ended ? withLive(kept) : kept), [kept, version])
  useTick(reload, REFRESH_MS, Boolean(data) && !data.ended)
  const mayStop = Boolean(data) && !data.ended && !me?.readonly
  const [chosen, setChosen] = useState({})
  const hide = Boolean(route.query.get("hide"))
  const goal = data?.metric?.goal
  const names = useMemo(() => [...new Set((data?.trials || []).flatMap((trial) => Object.keys(trial.params || {})))], [data])
  const inRange = (trial) => Object.entries(chosen).every(([axis, [low, high]]) => {
    const given = axis === "metric" ? trial.metric : trial.params[axis]
    return typeof given === "number" ? given >= low && given <= high : low.includes?.(given)
  })
  const shown = ranked((data?.trials || []).filter((trial) => !(hide && shownPhase(trial) === "early") && inRange(trial)), goal)
  const open = (trial) => trial?.run && go(href(["run", cluster, trial.run]))
  const [isWhole, setWhole] = useState(false)
  const drawn = isWhole ? shown : shown.slice(0, MOST)
  const rows = useRows("Sweep", "trial", drawn.length, (at) => open(drawn[at]))
  useKeys("Trials", [
    { keys: ["b"], label: "best", hint: "best", run: () => rows.select(drawn.findIndex((trial) => trial.trial === data?.best?.trial)) },
    { keys: ["s"], label: "stop, asks first", hint: mayStop && "stop", run: () => (mayStop ? ask("stopSweep", [data]) : toast(me?.readonly ? "This dashboard is read-only" : `${name} has ended`)) },
    { keys: ["h"], label: "hide stopped early", hint: "hide stopped early", run: () => setQuery({ hide: hide ? "" : "1" }) },
  ])
  if (!data) return error ? html`<${Problem} error=${error} retry=${reload} />` : html`<${Loading} what=${name} />`
  const { best, metric } = data
  const held = data.trials.reduce((sum, trial) => sum + ((trial.run && gpuHours(rowOf(cluster, trial.run) || {})) || 0), 0)
  const price = gpuHour(cluster)
  const done = data.trials.filter((trial) => trial.ended).length
  return html`<nav aria-label="Where you are"><ol class="crumbs"><li><a href="#/sweeps">Sweeps</a></li><li>${clusterTitle(cluster)}</li></ol></nav>
    <header class="run-head">
      <div class="title"><h1>${data.name}</h1><${Phase} phase=${phaseOf(data.phase)} word=${data.phase} big /><span class="soft">${count(done)} of ${count(data.planned || data.trials.length)} trials ended, ${data.method}, ${plural(data.parallel, "trial")} at once</span></div>
      ${mayStop && html`<div class="acts"><button class="btn" aria-haspopup="dialog" onClick=${() => ask("stopSweep", [data])}>Stop<kbd>s</kbd></button></div>`}
      <p class="lead">${data.phase === "failed" && data.reason ? `${capital(data.reason)}. ` : ""}${best ? `${data.ended ? "Best" : "Best so far"}: ${metric?.name || "metric"} ${value(best.metric)} with ${Object.entries(best.params).map(([key, given]) => `${key} ${plain(given)}`).join(", ")}.` : data.phase === "failed" && data.reason ? "" : data.reason ? capital(data.reason) : "No trial has reported its metric yet."}</p>
      <ul class="keyline">${data.user && html`<li>${data.user}</li>`}<li>started ${clock(data.created)}</li>${metric && html`<li>${metric.name}, ${goal}</li>`}${held > 0 && html`<li>${hours(held)} GPU-h${price ? `, ${money(held * price)}` : ""}</li>`}</ul>
    </header>
    <${LeftOut} error=${error} retry=${reload} />
    <div class="cols"><div class="stack">
      <${Parallel} trials=${data.trials.filter((trial) => !(hide && shownPhase(trial) === "early"))} names=${names} space=${data.space} metric=${metric?.name || "metric"} best=${best} chosen=${chosen} onChoose=${setChosen} />
      <${Trials} sweep=${data} trials=${shown} drawn=${drawn} onAll=${() => setWhole(true)} names=${names} best=${best} hide=${hide} selected=${rows.selected} />
    </div>
    <aside class="stack" aria-label="Details">
      <${BestSoFar} trials=${data.trials} goal=${goal} name=${metric?.name || "metric"} />
      ${Object.keys(data.importance || {}).length > 0 && html`<${Importance} shares=${data.importance} />`}
      ${data.command && html`<${Card} id="again" title="Run the best again"><div class="body"><${Command} text=${data.command} /></div></${Card}>`}
      <${Card} id="cli" title="On the command line"><div class="body stack tight"><${Command} text=${placed(cluster, `longboat sweep status ${data.name}`)} />${!data.ended && html`<${Command} text=${placed(cluster, `longboat sweep stop ${data.name}`)} />`}</div></${Card}>
    </aside></div>`
}
