// Every node a row, every GPU a cell: who has it, whether it works; and who waits, why, what would let them in.
import { get } from "../lib/api.js"
import { bytes, capital, count, now, plural, seconds, span } from "../lib/format.js"
import { html, useEffect, useMemo, useState } from "../lib/html.js"
import { useKeys } from "../lib/keys.js"
import { Empty, Icon, LeftOut, Loading, Note, Problem, Seg, useLoad, useTick } from "../lib/parts.js"
import { go, runHref, setQuery } from "../lib/router.js"
import { isAboutTheList } from "../lib/rows.js"
import { clusterTitle, placed, useStore } from "../lib/store.js"

const REFRESH_MS = 3000
const DENSE = 100 // nodes of a place: from here on a strip of cells says more than names
const HUES = ["c1", "c2", "c3", "c4", "c5", "c6"]

/** Colours in the order of first sight; from the seventh on all are grey, with their name. */
function useHues(clusters, by) {
  return useMemo(() => {
    const names = []
    for (const cluster of clusters) for (const node of cluster.nodes || []) for (const gpu of node.gpus || []) {
      const name = by === "person" ? gpu.owner : gpu.id && `${gpu.cluster}/${gpu.id}`
      if (name && !names.includes(name)) names.push(name)
    }
    return new Map(names.map((name, at) => [name, at < HUES.length ? HUES[at] : "text-3"]))
  }, [clusters, by])
}

/** Neighbouring cells that belong to one run stand under one name. */
function stretches(node) {
  const groups = []
  for (const [at, gpu] of (node.gpus || []).entries()) {
    const state = node.state === "lost" ? "lost" : node.state === "coming" ? "boot" : gpu.state === "free" && node.state === "cordoned" ? "cordon" : gpu.state
    const name = gpu.id ? `${gpu.cluster}/${gpu.id}` : gpu.holder ? `held by ${gpu.holder}` : state
    const last = groups[groups.length - 1]
    if (last && last.name === name) last.gpus.push({ ...gpu, state, at })
    else groups.push({ name, gpus: [{ ...gpu, state, at }] })
  }
  return groups
}

const isHot = (gpu) => (gpu.state === "used" || gpu.state === "idle") && gpu.throttle > 0.05
const WORDS = { free: "free", cordon: "-", broken: "x", lost: "x", boot: "..." }
const STATES = { free: "free", cordon: "cordoned", broken: "broken", lost: "lost with its node", boot: "coming" }
const KINDS = { free: "idle", cordon: "cordon", broken: "broken", lost: "broken", boot: "boot", idle: "unused", used: "" }

function Cell({ gpu, hue, chosen }) {
  const held = gpu.state === "used" || gpu.state === "idle"
  const use = gpu.use === null || gpu.use === undefined ? "" : Math.round(gpu.use)
  const told = [
    `GPU ${gpu.number}`,
    held ? (use === "" ? "held" : `${use}% used`) : STATES[gpu.state],
    gpu.memory && gpu.memory_total && `${bytes(gpu.memory)} of ${bytes(gpu.memory_total)}`,
    gpu.temperature && `${Math.round(gpu.temperature)} C`,
    gpu.power && `${Math.round(gpu.power)} W`,
  ].filter(Boolean).join(", ")
  const hot = isHot(gpu)
  return html`<li class=${`gpu ${hot ? "hot" : KINDS[gpu.state]}`} aria-current=${chosen ? "true" : null} title=${`${told}${hot ? ", slowed by heat or power" : ""}`} style=${held ? { "--c": `var(--${hue})`, "--u": `${use || 0}%` } : null}>
    <span class="sr">${told}</span><span aria-hidden="true">${hot && html`<${Icon} name="warning" />`}${held ? use : WORDS[gpu.state]}</span>
  </li>`
}

function Held({ group, hues, by, chosen }) {
  const [first] = group.gpus
  const hue = hues.get(by === "person" ? first.owner : group.name) || "text-3"
  return html`<div class="held" style=${{ "--n": group.gpus.length }}>
    <span class="who" title=${[first.id, first.owner].filter(Boolean).join(", ")}>${first.id ? html`<a href=${runHref(first)}>${first.id}</a> ${first.owner || ""}${first.state === "idle" ? html` <small>not used</small>` : ""}` : first.holder || (first.state === "free" ? html`<span class="sr">free</span>\u00a0` : STATES[first.state] || first.state)}</span>
    <ul>${group.gpus.map((gpu) => html`<${Cell} key=${gpu.number} gpu=${gpu} hue=${hue} chosen=${gpu.at === chosen} />`)}</ul>
  </div>`
}

function NodeRow({ node, hues, by, selected, chosen }) {
  const gpus = node.gpus || []
  const { held } = sums([node])
  const bad = node.state === "lost" || gpus.some((gpu) => gpu.state === "broken")
  const hot = gpus.filter(isHot).map((gpu) => gpu.number)
  const warmest = Math.max(...gpus.map((gpu) => gpu.temperature ?? -1))
  const told = node.reason || (hot.length && `GPU ${hot.join(", ")} throttled`) || (node.state === "ready" ? [node.model, node.pool && `pool ${node.pool}`].filter(Boolean).join(", ") : node.state)
  return html`<li class="node" data-selected=${selected ? "" : null}>
    <div class="id"><b class="cut" title=${node.name}>${node.name}</b>
      <small class=${bad ? "bad" : hot.length ? "warn" : ""} title=${told}>${bad ? html`<${Icon} name="failed" />` : hot.length ? html`<${Icon} name="warning" />` : node.state === "cordoned" ? html`<${Icon} name="cordon" />` : ""}<span class="cut">${told}</span></small></div>
    <div class="slots" style=${{ "--of": Math.max(8, gpus.length) }}>${gpus.length ? stretches(node).map((group) => html`<${Held} key=${group.gpus[0].number} group=${group} hues=${hues} by=${by} chosen=${chosen} />`) : html`<span class="muted no-gpu">no GPU${node.cpu ? `, ${count(node.cpu)} cores` : ""}</span>`}</div>
    <div class="use">${gpus.length > 0 && html`<b>${held} of ${gpus.length}</b>${warmest > 0 ? html`<span title="the warmest GPU">${Math.round(warmest)} C</span>` : "held"}`}</div>
  </li>`
}

/** More than a hundred nodes: one small square for each GPU, a column for each node. */
function Heat({ cluster, nodes, hues, by, selected, chosen }) {
  return html`<div class="heat">${nodes.map(
    (node) => html`<ul key=${node.name} title=${node.name} aria-label=${node.name} data-selected=${selected === `${cluster}/${node.name}` ? "" : null}>${stretches(node).flatMap((group) => group.gpus.map((gpu) => {
      const hue = hues.get(by === "person" ? gpu.owner : group.name) || "text-3"
      return html`<li class=${`gpu ${KINDS[gpu.state]}`} aria-current=${selected === `${cluster}/${node.name}` && gpu.at === chosen ? "true" : null} onClick=${() => gpu.id && go(runHref(gpu))} title=${`${node.name}, GPU ${gpu.number}: ${gpu.id || STATES[gpu.state] || gpu.state}`} style=${gpu.id ? { "--c": `var(--${hue})` } : null}><span class="sr">${gpu.id || STATES[gpu.state] || gpu.state}</span></li>`
    }))}</ul>`,
  )}</div>`
}

function sums(nodes) {
  const all = nodes.flatMap((node) => stretches(node).flatMap((group) => group.gpus))
  const number = (...states) => all.filter((gpu) => states.includes(gpu.state)).length
  return { all: all.length, held: number("used", "idle"), unused: number("idle"), free: number("free"), broken: number("broken", "lost"), cordoned: number("cordon"), coming: number("boot") }
}
const told = (sum) => [`${count(sum.held)} held${sum.unused ? ` (${count(sum.unused)} not used)` : ""}`, `${count(sum.free)} free`, sum.broken && `${sum.broken} broken or lost`, sum.cordoned && `${sum.cordoned} cordoned`, sum.coming && `${sum.coming} coming`].filter(Boolean).join(", ")

function Place({ cluster, hues, by, selected, chosen }) {
  const nodes = cluster.nodes || []
  const sum = sums(nodes)
  return html`<section class="place" aria-labelledby=${`p-${cluster.name}`}>
    <header><h2 id=${`p-${cluster.name}`}>${clusterTitle(cluster.name)}</h2><span class="soft">${plural(nodes.length, "node")}, ${plural(sum.all, "GPU")}${sum.all ? `: ${told(sum)}` : ""}</span></header>
    ${cluster.error && html`<${Note} kind="warn" icon="offline"><b>${capital(cluster.error)}</b></${Note}>`}
    ${nodes.length > DENSE ? html`<${Heat} cluster=${cluster.name} nodes=${nodes} hues=${hues} by=${by} selected=${selected} chosen=${chosen} />` : html`<ul>${nodes.map((node) => html`<${NodeRow} key=${node.name} node=${node} hues=${hues} by=${by} ...${selected === `${cluster.name}/${node.name}` ? { selected: true, chosen } : {}} />`)}</ul>`}
  </section>`
}

const opens = (item) => (item.lets_in || []).filter((text) => !isAboutTheList(text))

function Queue({ waiting }) {
  if (!waiting) return html`<section class="card" aria-labelledby="h-queue" aria-busy="true"><header><h2 id="h-queue">Queue</h2><span class="sub">being asked</span></header></section>`
  const places = [...new Set(waiting.map((item) => item.cluster))]
  const asked = waiting.reduce((sum, item) => sum + (item.gpus || 0), 0)
  return html`<section class="card queue-card" aria-labelledby="h-queue" id="queue">
    <header><h2 id="h-queue">Queue</h2><span class="sub">${waiting.length ? [plural(waiting.length, "run"), asked && plural(asked, "GPU")].filter(Boolean).join(", ") : "nobody waits"}</span></header>
    ${waiting.length > 0 && html`<ol class="queue" tabindex="0" aria-label="Waiting runs">
      ${places.map((place) => html`<li class="place-item"><span class="place-name">${clusterTitle(place)}</span><ol>${waiting.filter((item) => item.cluster === place).map(
        (item, at) => html`<li class="wait">
          <span class="pos">${item.position || at + 1}</span><a class="nm" href=${runHref(item)}>${item.id}</a><span class="sz">${item.gpus ? plural(item.gpus, "GPU") : plural(item.nodes || 1, "node")}</span>
          <span class="sub">${[item.owner, `for ${span(now() - seconds(item.created))}`, item.priority ? `priority ${item.priority}` : ""].filter(Boolean).join(", ")}</span>
          <p class="why">${capital(item.reason || "")}</p>
          ${opens(item).length > 0 && html`<ul class="opens">${opens(item).map((text) => html`<li><${Icon} name="arrow" />${text.startsWith("longboat ") ? html`<code>${placed(place, text)}</code>` : html`<span>${capital(text)}</span>`}</li>`)}</ul>`}
        </li>`,
      )}</ol></li>`)}
    </ol>`}
  </section>`
}

export default function Gpus({ route }) {
  useStore()
  const nodes = useLoad(() => get("nodes"), [])
  const queue = useLoad(() => get("queue"), [])
  useTick(nodes.reload, REFRESH_MS)
  useTick(queue.reload, REFRESH_MS)
  const by = route.query.get("by") || "person"
  const clusters = nodes.data?.clusters || []
  const hues = useHues(clusters, by)
  const flat = clusters.flatMap((cluster) => (cluster.nodes || []).map((node) => ({ key: `${cluster.name}/${node.name}`, node })))
  const [selected, setSelected] = useState(null)
  const [column, setColumn] = useState(-1) // -1: the node as a whole
  const at = flat.findIndex((entry) => entry.key === selected)
  const cells = flat[at]?.node.gpus || []
  const chosen = Math.min(column, cells.length - 1)
  const move = (step) => flat.length && setSelected(flat[Math.max(0, Math.min(flat.length - 1, at + step))].key)
  const moveCell = (step) => {
    if (at >= 0) return setColumn(Math.max(0, Math.min(cells.length - 1, chosen + step)))
    const first = flat.find((entry) => entry.node.gpus?.length)
    if (first) [setSelected(first.key), setColumn(0)]
  }
  const open = () => {
    const gpu = chosen >= 0 ? cells[chosen] : cells.find((entry) => entry.id)
    if (gpu?.id) go(runHref(gpu))
  }
  useEffect(() => document.querySelector("[data-selected]")?.scrollIntoView({ block: "nearest" }), [selected])
  useKeys("GPUs", [
    { keys: ["j", "k"], label: "next, previous node", hint: "node", run: (pressed) => move(pressed === "j" ? 1 : -1) },
    { keys: ["h", "l"], label: "GPU to the left, to the right", hint: "GPU", run: (pressed) => moveCell(pressed === "l" ? 1 : -1) },
    { keys: ["Enter"], label: "open its run", hint: "run", run: open },
    { keys: ["q"], label: "queue", hint: "queue", run: () => document.querySelector("#queue a")?.focus() },
    { keys: ["c"], label: "colour by person or run", hint: "colour by", run: () => setQuery({ by: by === "person" ? "run" : "" }) },
  ])
  if (!nodes.data) return html`<div class="head"><h1>GPUs</h1></div>${nodes.error ? html`<${Problem} error=${nodes.error} retry=${nodes.reload} />` : html`<${Loading} what="nodes" />`}`
  const sum = sums(clusters.flatMap((cluster) => cluster.nodes || []))
  const shares = new Map()
  for (const cluster of clusters) for (const node of cluster.nodes || []) if (node.state !== "lost") for (const gpu of node.gpus || []) {
    const name = by === "person" ? gpu.owner : gpu.id && `${gpu.cluster}/${gpu.id}`
    if (name) shares.set(name, (shares.get(name) || 0) + 1)
  }
  const isMeasured = clusters.some((cluster) => (cluster.nodes || []).some((node) => node.gpus?.some((gpu) => gpu.use !== null && gpu.use !== undefined)))
  const names = [...hues].filter(([name]) => shares.has(name)).map(([name, hue]) => [by === "person" ? name : name.slice(name.indexOf("/") + 1), hue, shares.get(name)])
  return html`<div class="head">
      <h1>GPUs</h1><p class="muted">${sum.all ? `${count(sum.held)} held of ${count(sum.all)}${sum.unused ? `, ${count(sum.unused)} of them unused` : ""}. ${count(sum.free)} free.` : "No GPU was seen."}</p>
      <div class="end"><${Seg} label="Colour by" chosen=${by} onChoose=${(given) => setQuery({ by: given === "person" ? "" : given })} options=${[["person", "by person"], ["run", "by run"]]} /></div>
    </div>
    <${LeftOut} error=${nodes.error} retry=${nodes.reload} />
    ${sum.all > 0 && html`<ul class="keyline gap-below" aria-label="Colours">
      ${names.slice(0, 12).map(([name, hue, share]) => html`<li><span class="sw" style=${{ "--c": `var(--${hue})` }}></span>${name} <span class="muted">${count(share)}</span></li>`)}
      ${[["unused", "0", "held, not used", sum.unused], ["idle", "free", "nobody has it", sum.free], ["broken", "x", "broken or lost", sum.broken], ["cordon", "-", "cordoned", sum.cordoned], ["boot", "...", "coming", sum.coming]].filter(([kind, , , number]) => number || kind === "unused" || kind === "idle").map(([kind, sign, word, number]) => html`<li><span class=${`gpu ${kind}`} aria-hidden="true"><span>${sign}</span></span>${word} <span class="muted">${count(number)}</span></li>`)}
    </ul>`}
    <div class="gpu-cols">
      <div class="nodes-list">${clusters.length ? clusters.map((cluster) => html`<${Place} key=${cluster.name} cluster=${cluster} hues=${hues} by=${by} selected=${selected} chosen=${chosen} />`) : html`<${Empty} title="No nodes"><p class="soft">Name a cluster: <code>longboat ui --on NAME</code>.</p></${Empty}>`}${isMeasured && html`<p class="muted gap">A figure in a cell is the use of that GPU in percent; the line below it is the same.</p>`}</div>
      <aside aria-label="Queue">${queue.error ? html`<${Problem} error=${queue.error} retry=${queue.reload} />` : html`<${Queue} waiting=${queue.data?.waiting} />`}</aside>
    </div>`
}
