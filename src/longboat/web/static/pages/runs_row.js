// One row of the list of runs, and the head of a group. A row is drawn again only if something of it changed.
import { capital, clock, count, hours, money, now, plural, seconds, span, utc, value } from "../lib/format.js"
import { Component, html } from "../lib/html.js"
import { Bar, Icon, Phase } from "../lib/parts.js"
import { go, href, runHref } from "../lib/router.js"
import { PHASES, gpuHours, matters, metric, ownLabels, paramsOf, underPhase } from "../lib/rows.js"
import { clusterTitle, gpuHour, key } from "../lib/store.js"

const size = (row) => (row.gpus ? `${count(row.gpus)} GPU${row.gpus === 1 ? "" : "s"} on ${plural(row.nodes || 1, "node")}` : plural(row.nodes || 1, "node"))

const Why = ({ row }) => {
  const { fact, next, warns } = matters(row)
  if (!fact && !next) return html`<span class="muted none">-</span>`
  return html`<span class="why two" title=${[fact, next].filter(Boolean).join("; ")}
    >${warns && html`<span class="warn"><${Icon} name="warning" /><span class="sr">Attention: </span></span>`}${fact && html`<b>${capital(fact)}</b>`}${fact && next ? "; " : ""}${next}</span
  >`
}

const Progress = ({ row }) => {
  if (row.step === undefined) return html`<span class="muted none">-</span>`
  const total = row.progress?.total ?? row.total
  return html`<span class="l1">${count(row.step)}${total ? html` <span class="muted">of ${count(total)}</span>` : ""}</span>
    ${total ? html`<${Bar} share=${(100 * row.step) / total} kind=${row.phase === "recovering" ? "warn" : row.phase === "running" ? "" : "off"} />` : ""}`
}

const Metric = ({ row }) => {
  const told = metric(row)
  if (!told) return html`<span class="muted none">-</span>`
  return html`<span class="l1">${value(told[1])}</span><span class="l2">${told[0]}</span>`
}

const Cost = ({ row }) => {
  const held = gpuHours(row)
  if (!held) return html`<span class="muted none">-</span>`
  const price = gpuHour(row.cluster)
  return html`<span class="l1">${hours(held)}<span class="unit"> GPU-h</span></span>${price !== null && html`<span class="l2">${price ? money(held * price) : "own"}</span>`}`
}

const WATCHED = ["row", "top", "index", "selected", "picked", "changed", "lost", "minute"]
export class RunRow extends Component {
  shouldComponentUpdate(next) {
    return WATCHED.some((name) => next[name] !== this.props[name])
  }
  render({ row, top, index, selected, picked, changed, onPick }) {
    const open = (event) => {
      if (!event.target.closest("a, input, label") && !getSelection().toString()) go(runHref(row))
    }
    const params = paramsOf(row)
    const title = [...params, ...ownLabels(row)].join(", ")
    return html`<div class="run" role="row" aria-rowindex=${index} aria-selected=${selected ? "true" : null} style=${{ top: `${top}px` }} onClick=${open}>
      <span role="cell" class="c-pick"><input type="checkbox" aria-label=${`Select ${row.name}`} checked=${picked} onChange=${() => onPick(key(row))} /></span>
      <span role="cell" class="c-phase"><span class="l1"><${Phase} phase=${row.phase} changed=${changed} /></span><span class="l2">${underPhase(row)}</span></span>
      <span role="rowheader" class="c-name"><a class="l1 name" href=${runHref(row)} title=${row.name}>${row.name}</a><span class="l2" title=${title || row.command}>${[row.owner, params.join(", ") || title || row.command].filter(Boolean).join(" · ")}</span></span>
      <span role="cell" class="c-where"><span class="l1">${clusterTitle(row.cluster)}</span><span class="l2">${size(row)}</span></span>
      <span role="cell" class="c-why"><${Why} row=${row} /></span>
      <span role="cell" class="c-progress"><${Progress} row=${row} /></span>
      <span role="cell" class="c-loss"><${Metric} row=${row} /></span>
      <span role="cell" class="c-cost num"><${Cost} row=${row} /></span>
      <span role="cell" class="c-age num"><time title=${`${clock(row.created)}, ${utc(row.created)}`}>${span(now() - seconds(row.created))}</time></span>
    </div>`
  }
}

export function GroupRow({ item, by, top, index, onToggle }) {
  const [cluster, sweep] = by === "sweep" && item.group ? [item.group.slice(0, item.group.indexOf("/")), item.group.slice(item.group.indexOf("/") + 1)] : []
  const title = sweep || (by === "place" ? clusterTitle(item.group) : item.group) || (by === "sweep" ? "No sweep" : "Nobody")
  const phases = PHASES.map((phase) => [phase, item.rows.filter((row) => row.phase === phase).length]).filter(([, number]) => number)
  return html`<div class="group" role="row" aria-rowindex=${index} style=${{ top: `${top}px` }}>
    <div class="gh" role="rowheader">
      <button aria-expanded=${String(item.open)} onClick=${() => onToggle(item.group)}><${Icon} name="chevron" />${title}</button>
      <span class="sum">${phases.map(([phase, number]) => html`<span>${count(number)} ${phase}</span>`)}${sweep && html`<a href=${href(["sweep", cluster, sweep])}>Open sweep</a>`}</span>
    </div>
  </div>`
}
