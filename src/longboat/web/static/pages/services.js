// What is served, and notebooks, shells and boards, with the ways to them.
import { get } from "../lib/api.js"
import { capital, clock, count, plural } from "../lib/format.js"
import { html } from "../lib/html.js"
import { Age, Card, Command, Empty, LeftOut, Loading, Phase, Problem, useLoad, useTick } from "../lib/parts.js"
import { href, runHref } from "../lib/router.js"
import { clusterTitle, useStore } from "../lib/store.js"

const REFRESH_MS = 5000
const PHASES = { ready: "running", starting: "starting", updating: "starting", degraded: "recovering", failed: "failed", stopping: "stopped" }
/** Only addresses of the web are links: what a service says of itself is not trusted further. */
const isWeb = (url) => /^https?:\/\//.test(url || "")
/** A token in the address is for the browser alone. */
const Address = ({ url }) => (isWeb(url) ? html`<a href=${url} rel="noreferrer noopener" target="_blank">${url.replace(/[?#].*$/, "")}</a>` : html`<span class="muted">${url || "-"}</span>`)
const Way = ({ row }) => (isWeb(row.url) || !row.open ? html`<${Address} url=${row.url} />` : html`<${Command} text=${row.open} />`)

const Services = ({ list }) => html`<${Card} id="services" title="Services" sub=${plural(list.length, "service")}><div class="scroll" tabindex="0" role="region" aria-label="Table of services"><table class="grid stacked">
  <thead><tr><th scope="col">Service</th><th scope="col">Phase</th><th scope="col" class="num">Ready</th><th scope="col">Serves</th><th scope="col" class="num">In flight</th><th scope="col">Address</th><th scope="col">Why</th></tr></thead>
  <tbody>${list.map((service) => html`<tr key=${`${service.cluster}/${service.name}`}>
    <th scope="row"><b>${service.name}</b><span class="small">${clusterTitle(service.cluster)}</span></th>
    <td data-label="Phase"><${Phase} phase=${PHASES[service.phase] || "pending"} word=${service.phase} /></td>
    <td data-label="Ready" class="num">${count(service.ready)} <span class="muted">of ${count(service.replicas)}</span></td>
    <td data-label="Serves"><a href=${href(["run", service.cluster, service.run])}>${service.run}</a><span class="small">${[service.step != null && `step ${count(service.step)}`, `version ${service.version}`, service.canary && `canary ${service.canary} ${service.weight}%`].filter(Boolean).join(", ")}</span></td>
    <td data-label="In flight" class="num">${count(service.in_flight)}</td><td data-label="Address" class="wrap"><${Address} url=${service.url} /></td><td data-label="Why" class="soft">${capital(service.reason || "")}</td>
  </tr>`)}</tbody>
</table></div></${Card}>`

const Benches = ({ list }) => html`<${Card} id="benches" title="Notebooks, shells and boards"><div class="scroll" tabindex="0" role="region" aria-label="Table of notebooks, shells and boards"><table class="grid stacked">
  <thead><tr><th scope="col">Name</th><th scope="col">What</th><th scope="col">Phase</th><th scope="col">Where</th><th scope="col" class="num">GPUs</th><th scope="col">Since</th><th scope="col">Open</th></tr></thead>
  <tbody>${list.map((row) => html`<tr key=${`${row.cluster}/${row.id}`}>
    <th scope="row"><a class="name" href=${runHref(row)}>${row.name}</a><span class="small">${row.owner || ""}</span></th><td data-label="What">${row.kind}</td><td data-label="Phase"><${Phase} phase=${row.phase} /></td>
    <td data-label="Where">${clusterTitle(row.cluster)}</td><td data-label="GPUs" class="num">${row.gpus ? count(row.gpus) : "-"}</td><td data-label="Since">${clock(row.created)}<span class="small"><${Age} at=${row.created} /></span></td><td data-label="Open" class="wrap"><${Way} row=${row} /></td>
  </tr>`)}</tbody>
</table></div></${Card}>`

export default function Page() {
  useStore()
  const { data, error, reload } = useLoad(() => get("services"), [])
  useTick(reload, REFRESH_MS)
  if (!data) return html`<div class="head"><h1>Services</h1></div>${error ? html`<${Problem} error=${error} retry=${reload} />` : html`<${Loading} what="services" />`}`
  const { services = [], benches = [] } = data
  return html`<div class="head"><h1>Services</h1><p class="muted">What is served, and where people work.</p></div>
    <${LeftOut} error=${error} retry=${reload} problems=${data.problems} />
    ${!services.length && !benches.length
      ? html`<${Empty} title="Nothing is served"><p class="soft">A checkpoint behind an address, with replicas that are watched; or a notebook beside the data.</p><${Command} text="longboat serve RUN" /><${Command} text="longboat notebook" /></${Empty}>`
      : html`<div class="stack">${services.length > 0 && html`<${Services} list=${services} />`}${benches.length > 0 && html`<${Benches} list=${benches} />`}</div>`}`
}
