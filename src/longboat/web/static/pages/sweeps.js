// All sweeps: how far each is, and its best trial.
import { get } from "../lib/api.js"
import { clock, count, utc, value } from "../lib/format.js"
import { html } from "../lib/html.js"
import { Bar, Command, Empty, LeftOut, Loading, Phase, Problem, useLoad, useTick } from "../lib/parts.js"
import { go, href } from "../lib/router.js"
import { clusterTitle, useStore } from "../lib/store.js"
import { useRows } from "./table_keys.js"

const REFRESH_MS = 5000
/** A sweep in a place that is not shown is kept on this machine all the same. */
const sweepHref = (sweep) => href(["sweep", sweep.cluster || "local", sweep.name])
const of = (sweep, name) => sweep.counts?.[name] ?? 0
export const phaseOf = (phase) => (phase === "waiting" ? "pending" : phase === "done" || phase === "ended" ? "succeeded" : phase)
const EARLY = ["pruned", "early", "stopped early", "stopped_early"]
export const shownPhase = (trial) => (EARLY.includes(trial.phase) ? "early" : phaseOf(trial.phase))

export default function Sweeps() {
  useStore()
  const { data, error, reload } = useLoad(() => get("sweeps"), [])
  useTick(reload, REFRESH_MS)
  const sweeps = data?.sweeps || []
  const rows = useRows("Sweeps", "sweep", sweeps.length, (at) => go(sweepHref(sweeps[at])))
  if (!data) return html`<div class="head"><h1>Sweeps</h1></div>${error ? html`<${Problem} error=${error} retry=${reload} />` : html`<${Loading} what="sweeps" />`}`
  if (!sweeps.length) {
    return html`<div class="head"><h1>Sweeps</h1></div><${LeftOut} error=${error} retry=${reload} problems=${data.problems} /><${Empty} title="No sweeps yet"><p class="soft">Many trials of one job, with the best one found for you.</p><${Command} text="longboat sweep train.yaml --param lr=0.1,0.01,0.001" /></${Empty}>`
  }
  return html`<div class="head"><h1>Sweeps</h1><p class="muted">${count(sweeps.length)} in all</p></div>
    <${LeftOut} error=${error} retry=${reload} problems=${data.problems} />
    <section class="card"><div class="scroll" tabindex="0" role="region" aria-label="Table of sweeps"><table class="grid trials stacked">
      <thead><tr><th scope="col">Sweep</th><th scope="col">Phase</th><th scope="col">Trials</th><th scope="col" class="num">Running</th><th scope="col" class="num">Failed</th><th scope="col">Method</th><th scope="col" class="num">Best</th><th scope="col">Where</th><th scope="col">Started</th></tr></thead>
      <tbody>${sweeps.map((sweep, at) => {
        const planned = sweep.planned || of(sweep, "ended") + of(sweep, "running") + of(sweep, "waiting")
        const best = typeof sweep.best === "object" ? sweep.best?.metric : sweep.best
        return html`<tr key=${`${sweep.cluster}/${sweep.name}`} aria-selected=${rows.selected === at ? "true" : null}>
          <th scope="row"><a class="name" href=${sweepHref(sweep)}>${sweep.name}</a></th>
          <td data-label="Phase"><${Phase} phase=${phaseOf(sweep.phase)} word=${sweep.phase} /></td>
          <td data-label="Trials" class="have">${count(of(sweep, "ended"))} <span class="muted">of ${count(planned)}</span><${Bar} share=${planned ? (100 * of(sweep, "ended")) / planned : 0} /></td>
          <td data-label="Running" class="num">${count(of(sweep, "running"))}</td><td data-label="Failed" class="num">${count(of(sweep, "failed"))}</td><td data-label="Method">${sweep.method || "-"}</td>
          <td data-label="Best" class="num">${value(best ?? null)}${best != null && sweep.metric && html`<span class="small">${sweep.metric.name}</span>`}</td><td data-label="Where">${sweep.cluster ? clusterTitle(sweep.cluster) : "not shown"}</td><td data-label="Started" title=${utc(sweep.created)}>${clock(sweep.created)}</td>
        </tr>`
      })}</tbody>
    </table></div></section>`
}
