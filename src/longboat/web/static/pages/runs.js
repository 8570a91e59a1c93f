// All runs of all places: filter, order, groups, choice. Ten thousand rows cost as much as thirty.
import { ask, isEnded } from "../lib/actions.js"
import { count, hours, money, plural } from "../lib/format.js"
import { html, useEffect, useMemo, useRef, useState } from "../lib/html.js"
import { useKeys } from "../lib/keys.js"
import { Command, Empty, Icon, Select, copy, toast } from "../lib/parts.js"
import { go, runHref, setQuery } from "../lib/router.js"
import { PHASES, filtered, gpuHours, grouped, ordered, ownLabels } from "../lib/rows.js"
import { gpuHour, key, placed, useStore } from "../lib/store.js"
import { reveal, useVirtual } from "../lib/virtual.js"
import { GroupRow, RunRow } from "./runs_row.js"

const GROUP_PX = 32
const COLUMNS = [
  ["phase", "Phase", "c-phase"],
  ["name", "Run", "c-name"],
  ["where", "Where, size", "c-where"],
  ["", "What matters now", "c-why"],
  ["progress", "Step", "c-progress"],
  ["metric", "Metric", "c-loss"],
  ["cost", "GPU-h, cost", "c-cost num"],
  ["age", "Age", "c-age num"],
]

const useNarrow = () => {
  const [narrow, setNarrow] = useState(matchMedia("(max-width: 900px)").matches)
  useEffect(() => {
    const media = matchMedia("(max-width: 900px)")
    const changed = () => setNarrow(media.matches)
    media.addEventListener("change", changed)
    return () => media.removeEventListener("change", changed)
  }, [])
  return narrow
}

/** What is asked for, from the address. */
const wanted = (query) => Object.fromEntries(["q", "phase", "place", "person", "label", "group", "order", "dir"].map((name) => [name, query.get(name) || ""]))

/** The items of the list: rows and heads of groups, and where each begins. */
function layout(rows, group, closed, rowPx) {
  const items = []
  for (const { name, rows: members } of grouped(rows, group)) {
    if (name !== null) items.push({ group: name, rows: members, open: !closed.has(name) })
    if (name === null || !closed.has(name)) for (const row of members) items.push({ row })
  }
  const tops = [0]
  for (const item of items) tops.push(tops[tops.length - 1] + (item.row ? rowPx : GROUP_PX))
  return { items, tops }
}

/** The rows in an order that does not change under the pointer: new and moved ones wait until they are asked for. */
function useCalm(rows, held, inputs) {
  const kept = useRef({ inputs: "", order: [] })
  const [turn, setTurn] = useState(0)
  const calm = useMemo(() => {
    if (!held || kept.current.inputs !== inputs) {
      kept.current = { inputs, order: rows.map(key) }
      return { shown: rows, added: 0, moved: 0 }
    }
    const byKey = new Map(rows.map((row) => [key(row), row]))
    const order = kept.current.order.filter((name) => byKey.has(name))
    const before = new Set(order)
    const staying = rows.map(key).filter((name) => before.has(name))
    const moved = staying.filter((name, at) => order[at] !== name).length
    return { shown: order.map((name) => byKey.get(name)), added: rows.length - staying.length, moved }
  }, [rows, held, inputs, turn])
  const release = () => {
    kept.current.inputs = ""
    setTurn(turn + 1)
  }
  return { ...calm, release }
}

function Filters({ all, asked, shown, store }) {
  const people = useMemo(() => [...new Set(all.map((row) => row.owner).filter(Boolean))].sort(), [store.version])
  const set = (name) => (given) => setQuery({ [name]: given })
  const labels = useMemo(() => {
    const names = new Set()
    for (const row of all) for (const label of ownLabels(row)) names.add(label)
    return [...names].sort().slice(0, 100) // a menu longer than that is searched, not read
  }, [store.version])
  const me = store.me?.user
  return html`<div class="filters">
    <label class="field"
      ><${Icon} name="search" /><span class="sr">Search runs</span
      ><input type="search" value=${asked.q} placeholder="Name, person, label or reason" aria-keyshortcuts="/" onInput=${(event) => setQuery({ q: event.target.value })} /><kbd>/</kbd></label
    >
    <${Select} label="Place" chosen=${asked.place} onChoose=${set("place")} options=${[["", "All places"], ...store.clusters.map((cluster) => [cluster.name, cluster.title || cluster.name])]} />
    <${Select} label="Person" chosen=${asked.person} onChoose=${set("person")} options=${[["", "Everybody"], ...people.map((name) => [name, name === me ? `${name} (you)` : name])]} />
    ${labels.length > 0 && html`<${Select} label="Label" chosen=${asked.label} onChoose=${set("label")} options=${[["", "All labels"], ...labels.map((name) => [name, name])]} />`}
    <${Select} label="Group" chosen=${asked.group || "sweep"} onChoose=${set("group")} options=${[["sweep", "By sweep"], ["none", "Not grouped"], ["place", "By place"], ["person", "By person"]]} />
    <${Select}
      label="Order"
      chosen=${asked.order || "attention"}
      onChoose=${(order) => setQuery({ order, dir: "" })}
      options=${[["attention", "Attention first"], ["newest", "Newest first"], ["cost", "GPU-hours"], ["name", "Name"], ["phase", "Phase"], ["where", "Place"], ["progress", "Step"], ["metric", "Metric"], ["age", "Oldest first"]]}
    />
    <span class="end" role="status">${plural(shown, "run")}</span>
  </div>`
}

const Chips = ({ rows, phase }) => html`<div class="chips" role="group" aria-label="Phase">
  ${["", ...PHASES].map(
    (name) => html`<button class="chip" aria-pressed=${String(phase === name)} onClick=${() => setQuery({ phase: name })}>
      ${name && html`<span class=${`phase ${name}`}><${Icon} name=${name} /></span>`}${name ? name[0].toUpperCase() + name.slice(1) : "All"}
      <span class="n">${count(name ? rows.filter((row) => row.phase === name).length : rows.length)}</span>
    </button>`,
  )}
</div>`

function Head({ order, dir }) {
  const sort = (name) => setQuery(order === name ? { dir: dir === "up" ? "" : "up" } : { order: name, dir: "" })
  const state = (name) => (!name ? null : order === name ? (dir === "up" ? "ascending" : "descending") : "none")
  return html`<div class="hd" role="row" aria-rowindex="1">
    <span role="columnheader" class="c-pick"><span class="sr">Select</span></span>
    ${COLUMNS.map(
      ([name, title, type]) => html`<span role="columnheader" class=${type} aria-sort=${state(name)}
        >${name ? html`<button onClick=${() => sort(name)}>${title}${order === name && html`<${Icon} name="chevron" />`}</button>` : title}</span
      >`,
    )}
  </div>`
}

function NothingYet({ clusters }) {
  return html`<${Empty} title="No runs yet">
    <p class="soft">Runs of this machine appear here by themselves, those of clusters once they are named: <code>longboat ui --on NAME</code>.</p>
    <${Command} text="longboat run train.py" />
    ${clusters.filter((cluster) => cluster.kind !== "local" && cluster.context).slice(0, 1).map((cluster) => html`<${Command} text=${`longboat run --on ${cluster.context} --gpus 1 train.py`} />`)}
  </${Empty}>`
}

const FILTERS = [["q", "search"], ["phase", "phase"], ["place", "place"], ["person", "person"], ["label", "label"]]
function NothingMatches({ asked, hidden }) {
  const set = FILTERS.filter(([name]) => asked[name])
  return html`<${Empty} title="No run matches">
    <p class="soft">${plural(hidden, "run")} hidden by ${plural(set.length, "filter")}: ${set.map(([name, word]) => `${word} ${asked[name]}`).join(", ")}.</p>
    <div class="acts">
      ${set.length > 1 && set.map(([name, word]) => html`<button class="btn" onClick=${() => setQuery({ [name]: "" })}>Drop the ${word}</button>`)}
      <button class="btn" onClick=${() => setQuery(Object.fromEntries(FILTERS.map(([name]) => [name, ""])))}>Drop all filters</button>
    </div>
  </${Empty}>`
}

function Picked({ rows, clear, readonly }) {
  const open = rows.filter((row) => !isEnded(row))
  const compare = () => go(`#/compare?${new URLSearchParams(rows.map((row) => ["run", key(row)]))}`)
  return html`<div class="picked" role="region" aria-label="Selected runs">
    <span role="status">${plural(rows.length, "run")} selected</span>
    <button class="btn" disabled=${rows.length < 2 || rows.length > 20} onClick=${compare}>Compare</button>
    ${!readonly && html`<button class="btn" disabled=${!open.length} onClick=${() => ask("stop", open)}>Stop</button>
      <button class="btn" disabled=${open.length > 0} onClick=${() => ask("remove", rows)}>Remove</button>`}
    <button class="btn plain" onClick=${clear}>Clear</button>
  </div>`
}

const totals = (rows) => {
  const busy = rows.filter((row) => !isEnded(row) && row.phase !== "pending")
  const gpus = busy.reduce((sum, row) => sum + (row.gpus || 0), 0)
  const hourly = busy.reduce((sum, row) => sum + (row.gpus || 0) * (gpuHour(row.cluster) || 0), 0)
  return `${plural(busy.length, "run")} at work, ${plural(gpus, "GPU")} held${hourly ? `, ${money(hourly)} an hour` : ""}; ${hours(rows.reduce((sum, row) => sum + (gpuHours(row) || 0), 0))} GPU-h in all.`
}

export default function Runs({ route }) {
  const store = useStore()
  const asked = wanted(route.query)
  const [selected, setSelected] = useState(null)
  const [picked, setPicked] = useState(new Set())
  const [closed, setClosed] = useState(new Set())
  const [held, setHeld] = useState(false)
  const rowPx = useNarrow() ? 96 : 44
  const all = useMemo(() => [...store.runs.values()].filter((row) => !["replica", "notebook", "shell", "board"].includes(row.kind)), [store.version])
  const beforePhase = useMemo(() => filtered(all, { ...asked, phase: "" }), [all, asked.q, asked.place, asked.person, asked.label])
  const sorted = useMemo(() => ordered(asked.phase ? beforePhase.filter((row) => row.phase === asked.phase) : beforePhase, asked.order || "attention", asked.dir), [beforePhase, asked.phase, asked.order, asked.dir])
  const calm = useCalm(sorted, held, JSON.stringify(asked))
  const { items, tops } = useMemo(() => layout(calm.shown, asked.group || "sweep", closed, rowPx), [calm.shown, asked.group, closed, rowPx])
  const [element, first, last] = useVirtual(tops)

  const at = items.findIndex((item) => item.row && key(item.row) === selected)
  const current = items[at]?.row
  const targets = picked.size ? all.filter((row) => picked.has(key(row))) : current ? [current] : []
  const move = (by) => {
    let next = at
    do next += by
    while (items[next] && !items[next].row)
    if (!items[next]) next = at < 0 ? items.findIndex((item) => item.row) : at
    if (next < 0) return
    setSelected(key(items[next].row))
    reveal(element.current, tops, next)
  }
  useEffect(() => {
    const box = element.current
    if (selected && (document.activeElement === document.body || box?.contains(document.activeElement))) {
      box?.querySelector(".run[aria-selected='true'] .name")?.focus({ preventScroll: true })
    }
  }, [selected])
  const pick = (name) => {
    const next = new Set(picked)
    if (!next.delete(name)) next.add(name)
    setPicked(next)
  }
  const may = (row, deed) => (store.me?.readonly ? toast("This dashboard is read-only", { icon: "info" }) : deed(row))
  const on = (deed) => () => current && deed(current)
  useKeys("Runs", [
    { keys: ["j", "k"], label: "next, previous", hint: "move", run: (pressed) => move(pressed === "j" ? 1 : -1) },
    { keys: ["ArrowDown", "ArrowUp"], run: (pressed) => move(pressed === "ArrowDown" ? 1 : -1) },
    { keys: ["Enter"], label: "open", hint: "open", run: on((row) => go(runHref(row))) },
    { keys: ["x"], label: "select", hint: "select", run: on((row) => pick(key(row))) },
    { keys: ["s"], label: "stop, asks first", hint: "stop", run: () => may(null, () => ask("stop", targets.filter((row) => !isEnded(row)))) },
    { keys: ["l"], label: "logs", hint: "logs", run: on((row) => go(runHref(row, { show: "log" }))) },
    { keys: ["e"], label: "explain", run: on((row) => go(runHref(row, { show: "why" }))) },
    { keys: ["r"], label: "run again, asks first", run: on((row) => may(row, () => (isEnded(row) ? ask("retry", [row]) : toast(`${row.name} has not ended`)))) },
    { keys: ["c"], label: "copy command", run: on((row) => copy(placed(row.cluster, `longboat status ${row.name}`))) },
    { keys: ["1", "2", "3", "4", "5", "6", "7"], shown: ["1 to 7", "0"], label: "phase, all", run: (pressed) => setQuery({ phase: PHASES[Number(pressed) - 1] }) },
    { keys: ["0"], run: () => setQuery({ phase: "" }) },
  ])
  const toggle = (name) => {
    const next = new Set(closed)
    if (!next.delete(name)) next.add(name)
    setClosed(next)
  }
  if (!all.length) return html`<div class="head"><h1>Runs</h1></div><${NothingYet} clusters=${store.clusters} />`
  const visible = []
  for (let index = first; index < last; index += 1) {
    const item = items[index]
    if (!item) break
    if (item.row) {
      const name = key(item.row)
      visible.push(html`<${RunRow} key=${name} row=${item.row} top=${tops[index]} index=${index + 2} selected=${selected === name} picked=${picked.has(name)} changed=${store.changedAt.has(name)} lost=${Boolean(store.lost)} onPick=${pick} minute=${Math.floor(Date.now() / 30000)} />`)
    } else visible.push(html`<${GroupRow} key=${`group ${item.group}`} item=${item} by=${asked.group || "sweep"} top=${tops[index]} index=${index + 2} onToggle=${toggle} />`)
  }
  return html`<div class="head">
      <h1>Runs</h1>
      <p class="muted">${totals(all)}</p>
    </div>
    <${Filters} all=${all} asked=${asked} shown=${sorted.length} store=${store} />
    <${Chips} rows=${beforePhase} phase=${asked.phase} />
    ${!sorted.length
      ? html`<${NothingMatches} asked=${asked} hidden=${all.length} />`
      : html`<div
          class=${`runs${picked.size ? " picking" : ""}`}
          role="table"
          aria-label="Runs"
          aria-rowcount=${items.length + 1}
          onPointerEnter=${() => setHeld(true)}
          onPointerLeave=${() => setHeld(false)}
          onFocusIn=${() => setHeld(true)}
          onFocusOut=${() => setHeld(false)}
        >
          <div role="rowgroup" class="hd-group"><${Head} order=${asked.order || "attention"} dir=${asked.dir} /></div>
          ${held && (calm.added > 0 || calm.moved > 0) && html`<button class="moved" onClick=${calm.release}>${[calm.added && `${calm.added} new`, calm.moved && `${calm.moved} moved`].filter(Boolean).join(", ")}</button>`}
          <div role="rowgroup" class="rows" ref=${element} style=${{ height: `${tops[tops.length - 1]}px` }}>${visible}</div>
        </div>`}
    ${picked.size > 0 && html`<${Picked} rows=${all.filter((row) => picked.has(key(row)))} clear=${() => setPicked(new Set())} readonly=${store.me?.readonly} />`}`
}
