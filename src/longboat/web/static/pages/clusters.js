// Clusters that are made here: every host a row, every step of `up` a column.
import { get } from "../lib/api.js"
import { capital, clock, count, plural, span } from "../lib/format.js"
import { html } from "../lib/html.js"
import { Card, Command, Empty, Icon, LeftOut, Loading, Problem, useLoad, useTick } from "../lib/parts.js"
import { useStore } from "../lib/store.js"

const REFRESH_MS = 2000
const ICONS = { done: "succeeded", running: "running", waiting: "pending", failed: "failed", skipped: "keep" }
const TONES = { done: "ok", running: "accent", waiting: "muted", failed: "bad", skipped: "muted" }

const State = ({ state, word }) => html`<span class=${`act ${TONES[state] || "muted"}`}><${Icon} name=${ICONS[state] || "dot"} />${word || state}</span>`

function Steps({ cluster }) {
  const names = [...new Set(cluster.hosts.flatMap((host) => (host.steps || []).map((step) => step.name)))]
  const failed = cluster.hosts.flatMap((host) => (host.steps || []).filter((step) => step.state === "failed").map((step) => ({ host, step })))
  return html`${failed.map(({ host, step }) => html`<div class="note bad in-card" role="status"><${Icon} name="failed" /><div><b>${host.name}: ${step.name} failed.</b> ${capital(step.reason || "")}</div></div>`)}
    <div class="scroll" tabindex="0" role="region" aria-label=${`Hosts and steps of ${cluster.name}`}><table class="grid hosts">
      <thead><tr><th scope="col">Host</th><th scope="col">Role</th><th scope="col">State</th>${names.map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>
      <tbody>${cluster.hosts.map((host) => html`<tr key=${host.name}>
        <th scope="row"><b>${host.name}</b><span class="small">${host.address && host.address !== host.name ? host.address : ""}</span></th><td>${host.role || "-"}</td><td>${host.state ? html`<${State} state=${host.state} />` : "-"}</td>
        ${names.map((name) => {
          const step = (host.steps || []).find((entry) => entry.name === name)
          return html`<td title=${step?.reason || null}>${step ? html`<${State} state=${step.state} /><span class="small">${step.seconds != null ? span(step.seconds) : ""}</span>` : html`<span class="muted">-</span>`}</td>`
        })}
      </tr>`)}</tbody>
    </table></div>`
}

export default function Clusters() {
  const store = useStore()
  const { data, error, reload } = useLoad(() => get("clusters"), [])
  useTick(reload, REFRESH_MS)
  if (!data) return html`<div class="head"><h1>Clusters</h1></div>${error ? html`<${Problem} error=${error} retry=${reload} />` : html`<${Loading} what="clusters" />`}`
  const made = data.clusters || []
  return html`<div class="head"><h1>Clusters</h1><p class="muted">${plural(store.clusters.length, "place")} shown here; ${count(made.length)} made from this machine.</p></div>
    <${LeftOut} error=${error} retry=${reload} />
    <div class="stack">
      <${Card} id="places" title="Places"><div class="scroll" tabindex="0" role="region" aria-label="Table of places"><table class="grid stacked">
        <thead><tr><th scope="col">Place</th><th scope="col">Kind</th><th scope="col">State</th><th scope="col">Namespace</th><th scope="col" class="num">Runs</th></tr></thead>
        <tbody>${store.clusters.map((cluster) => html`<tr key=${cluster.name}><th scope="row"><b>${cluster.title || cluster.name}</b><span class="small">${cluster.context && cluster.context !== (cluster.title || cluster.name) ? cluster.context : ""}</span></th><td data-label="Kind">${cluster.kind}</td>
          <td data-label="State"><${State} state=${cluster.ok ? "done" : cluster.loading ? "waiting" : "failed"} word=${cluster.ok ? "answers" : cluster.loading ? "loading" : "does not answer"} /><span class="small">${cluster.error || ""}</span></td><td data-label="Namespace">${cluster.namespace || "-"}</td>
          <td data-label="Runs" class="num">${count([...store.runs.values()].filter((row) => row.cluster === cluster.name).length)}</td></tr>`)}</tbody>
      </table></div></${Card}>
      ${made.map((cluster) => html`<${Card} key=${cluster.name} id=${`cluster-${cluster.name}`} title=${cluster.name} sub=${[cluster.phase, plural((cluster.hosts || []).length, "host"), cluster.changed && `last step ${clock(cluster.changed)}`].filter(Boolean).join(", ")}>
        ${cluster.hosts?.length > 0 && html`<${Steps} cluster=${cluster} />`}${cluster.command && html`<div class="body foot"><${Command} text=${cluster.command} /></div>`}
      </${Card}>`)}
      ${!made.length && html`<${Empty} title="No cluster was made from this machine"><p class="soft">Hosts with GPUs become a cluster with one file and one command; its progress is shown here.</p><${Command} text="longboat cluster init ubuntu@gpu-1 ubuntu@gpu-2" /><${Command} text="longboat cluster up cluster.yaml" /></${Empty}>`}
    </div>`
}
