// The frame: pages, go-to, theme, keys, banners, the age of each source. Pages are loaded when they are first opened.
import { Actions } from "./lib/actions.js"
import { now, plural, seconds, span } from "./lib/format.js"
import { html, render, useEffect, useMemo, useRef, useState } from "./lib/html.js"
import { current, letters, read, useKeys, write } from "./lib/keys.js"
import { Dialog, Icon, Loading, Note, Problem, Toasts, useTick } from "./lib/parts.js"
import { go, href, runHref, useRoute } from "./lib/router.js"
import { clusterTitle, connect, store, useStore } from "./lib/store.js"

const PAGES = [
  ["runs", "Runs", "list"],
  ["sweeps", "Sweeps", "sweep"],
  ["gpus", "GPUs", "chip"],
  ["autoscaler", "Autoscaler", "scale"],
  ["services", "Services", "service"],
  ["clusters", "Clusters", "cluster"],
]
const LOADERS = {
  runs: () => import("./pages/runs.js"),
  run: () => import("./pages/run.js"),
  sweeps: () => import("./pages/sweeps.js"),
  sweep: () => import("./pages/sweep.js"),
  gpus: () => import("./pages/gpus.js"),
  compare: () => import("./pages/compare.js"),
  autoscaler: () => import("./pages/autoscaler.js"),
  services: () => import("./pages/services.js"),
  clusters: () => import("./pages/clusters.js"),
}
const PARENT = { run: "runs", compare: "runs", sweep: "sweeps" }

function switchTheme() {
  const root = document.documentElement
  const dark = root.dataset.theme === "dark" || (root.dataset.theme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches)
  root.dataset.theme = dark ? "light" : "dark"
  write("theme", root.dataset.theme)
  dispatchEvent(new Event("themechange"))
}

function Top({ page, openJump, openHelp }) {
  return html`<header class="top">
    <a class="brand" href="#/runs"><${Icon} name="boat" />Longboat</a>
    <nav class="nav" aria-label="Pages">
      ${PAGES.map(
        ([name, title, icon]) => html`<a href=${`#/${name}`} aria-current=${(PARENT[page] || page) === name ? "page" : null}><${Icon} name=${icon} />${title}</a>`,
      )}
    </nav>
    <div class="top-end">
      <button class="btn jump" aria-keyshortcuts="Control+K" onClick=${openJump}>
        <${Icon} name="search" /><span>Go to run, sweep, page</span><kbd aria-hidden="true">Ctrl K</kbd>
      </button>
      <button class="btn plain icon" aria-label="Switch theme" aria-keyshortcuts="t" onClick=${switchTheme}><${Icon} name="theme" /></button>
      <button class="btn plain icon" aria-label="Keyboard help" aria-keyshortcuts="?" onClick=${openHelp}><${Icon} name="keyboard" /></button>
    </div>
  </header>`
}

function Source({ cluster }) {
  const { lost, seen } = store
  const at = seconds(seen[cluster.name] || cluster.seen)
  const age = at === null ? null : now() - at
  const bad = lost || !cluster.ok
  const told = lost ? `as of ${span(now() - lost)} ago` : cluster.loading ? "loading" : !cluster.ok ? (age === null ? "offline" : `offline ${span(age)}`) : age < 10 ? "now" : span(age)
  return html`<li>
    <span class=${bad ? "warn" : "ok"}><${Icon} name=${bad ? "offline" : "dot"} /></span><span class="cut" title=${cluster.title}>${cluster.title || cluster.name}</span> <span class="muted">${told}</span>
  </li>`
}

function Status() {
  const [, redraw] = useState(0)
  const tick = useMemo(() => () => redraw((turn) => turn + 1), [])
  useTick(tick, 1000)
  useEffect(() => {
    addEventListener("keyschange", tick)
    return () => removeEventListener("keyschange", tick)
  }, [tick])
  const hints = current().flatMap((scope) => scope.bindings).filter((binding) => binding.hint)
  return html`<footer class="status">
    <ul aria-label="Sources, and how old what they told is">${store.clusters.map((cluster) => html`<${Source} key=${cluster.name} cluster=${cluster} />`)}</ul>
    <ul class="hints" aria-label="Keys">
      ${hints.map((binding) => html`<li>${binding.keys.slice(0, 2).map((name) => html`<kbd>${name}</kbd>`)} ${binding.hint}</li>`)}
    </ul>
  </footer>`
}

function Banners() {
  const { lost, clusters, me, loaded } = store
  const dead = clusters.filter((cluster) => !cluster.ok && !cluster.loading)
  const held = (cluster) => [...store.runs.values()].filter((row) => row.cluster === cluster.name).length
  return html`<div class="banners">
    ${lost && loaded && html`<${Note} kind="bad" icon="failed" alert><b>The dashboard has lost its server.</b> It takes up by itself if the server answers again. One that was started anew has a new address: open what <code>longboat ui</code> prints. What is shown is ${span(now() - lost)} old.</${Note}>`}
    ${!lost && dead.map((cluster) => html`<${Note} kind="warn" icon="offline" key=${cluster.name}><b>${cluster.title || cluster.name} does not answer.</b> ${cluster.error ? `${cluster.error.replace(/[.;]?$/, ".")} ` : ""}${held(cluster) ? `Its ${plural(held(cluster), "run")} are as last known; they go on.` : ""}</${Note}>`)}
    ${me?.readonly && html`<${Note}>This dashboard is read-only: nothing can be stopped, started or removed here.</${Note}>`}
  </div>`
}

function Jump({ close }) {
  const [text, setText] = useState("")
  const [at, setAt] = useState(0)
  const wanted = text.toLowerCase()
  const targets = useMemo(() => {
    const pages = PAGES.map(([name, title]) => ({ title, sub: "page", to: `#/${name}` }))
    const sweeps = new Map()
    const runs = []
    for (const row of store.runs.values()) {
      if (row.sweep) sweeps.set(`${row.cluster}/${row.sweep}`, { title: row.sweep, sub: "sweep", to: href(["sweep", row.cluster, row.sweep]) })
      runs.push({ title: row.name, sub: `${row.phase}, ${clusterTitle(row.cluster)}`, to: runHref(row) })
    }
    return [...pages, ...sweeps.values(), ...runs]
  }, [])
  const hits = targets.filter((target) => target.title.toLowerCase().includes(wanted)).slice(0, 12)
  const open = (to) => {
    close()
    go(to)
  }
  const onKeyDown = (event) => {
    if (event.key === "ArrowDown") setAt(Math.min(at + 1, hits.length - 1))
    else if (event.key === "ArrowUp") setAt(Math.max(at - 1, 0))
    else if (event.key === "Enter" && hits[at]) open(hits[at].to)
    else return
    event.preventDefault()
  }
  return html`<${Dialog} title="Go to" onClose=${close}>
    <label class="field typed"><${Icon} name="search" /><span class="sr">Name of a run, sweep or page</span>
      <input
        data-focus
        role="combobox"
        aria-expanded="true"
        aria-controls="jump-list"
        aria-activedescendant=${hits[at] ? `jump-${at}` : null}
        autocomplete="off"
        value=${text}
        onInput=${(event) => {
          setText(event.target.value)
          setAt(0)
        }}
        onKeyDown=${onKeyDown}
    /></label>
    <div class="results" id="jump-list" role="listbox" aria-label="Targets">
      ${hits.map(
        (target, index) => html`<a href=${target.to} role="option" id=${`jump-${index}`} tabindex="-1" aria-selected=${String(index === at)} onClick=${close}
          >${target.title}<span class="end">${target.sub}</span></a
        >`,
      )}
      ${!hits.length && html`<p class="muted">Nothing is called so.</p>`}
    </div>
  </${Dialog}>`
}

function Help({ close }) {
  const [on, setOn] = useState(letters.on)
  const change = (event) => {
    letters.on = event.target.checked
    setOn(event.target.checked)
  }
  return html`<${Dialog} title="Keyboard" wide onClose=${close} acts=${html`<button class="btn" data-focus onClick=${close}>Close</button>`}>
    <div class="keys">
      ${current().map(
        (scope) => html`<div>
          <h3>${scope.title}</h3>
          <dl>${scope.bindings.filter((binding) => binding.label).map((binding) => html`<dt>${(binding.shown || binding.keys).map((name) => html`<kbd>${name}</kbd>`)}</dt><dd>${binding.label}</dd>`)}</dl>
        </div>`,
      )}
    </div>
    <p class="gap"><label class="check"><input type="checkbox" checked=${on} onChange=${change} />Single letters are commands</label></p>
  </${Dialog}>`
}

const NotLoaded = () => html`<${Problem} error=${{ message: "This page could not be loaded.", hint: "Start the server again with longboat ui, then load the page again." }} retry=${() => location.reload()} />`

function Page({ name, route }) {
  const [module, setModule] = useState(null)
  useEffect(() => {
    let wanted = true
    setModule(null)
    LOADERS[name]().then(
      (loaded) => wanted && setModule(() => loaded.default),
      () => wanted && setModule(() => NotLoaded),
    )
    return () => {
      wanted = false
    }
  }, [name])
  if (!module) return html`<div aria-busy="true"></div>`
  return html`<${module} route=${route} key=${name} />`
}

function Body({ route, page }) {
  const { loaded, error } = store
  if (error?.status === 401) {
    return html`<div class="card"><div class="empty"><h1>This address has no valid token</h1>
      <p class="soft">Open the address that <code>longboat ui</code> printed: it holds the token, which is new each time it starts.</p></div></div>`
  }
  if (!loaded) return error ? html`<${Problem} error=${error} retry=${connect} />` : html`<${Loading} what="runs" rows=${12} />`
  if (!LOADERS[page]) return html`<div class="card"><div class="empty"><h1>There is no such page</h1><p><a href="#/runs">All runs</a></p></div></div>`
  return html`<${Page} key=${page} name=${page} route=${route} />`
}

function App() {
  const route = useRoute()
  const page = route.parts[0] || "runs"
  const [open, setOpen] = useState("")
  const main = useRef(null)
  useStore()
  const close = () => setOpen("")
  useKeys("Everywhere", [
    { keys: ["Ctrl K"], label: "go to run, sweep, page", run: () => setOpen("jump") },
    ...[["r", "runs"], ["s", "sweeps"], ["g", "gpus"], ["a", "autoscaler"], ["v", "services"], ["c", "clusters"]].map(([letter, name]) => ({
      keys: [`g ${letter}`], label: name === "gpus" ? "GPUs" : name, run: () => go(`#/${name}`),
    })),
    { keys: ["/"], label: "search this page", run: () => document.querySelector("[aria-keyshortcuts='/']")?.focus() },
    { keys: ["t"], label: "theme", run: switchTheme },
    { keys: ["?"], label: "this help", hint: "all keys", run: () => setOpen("help") },
    { keys: ["Escape"], label: "back", run: () => PARENT[page] && go(`#/${PARENT[page]}`) },
  ])
  useEffect(() => {
    const title = route.parts[2] || PAGES.find(([name]) => name === page)?.[1] || "Compare"
    document.title = `${title} - Longboat`
    scrollTo(0, 0)
  }, [route.parts.join("/")])
  return html`<a class="skip" href="#main" onClick=${(event) => {
      event.preventDefault()
      main.current.focus()
    }}>Skip to content</a>
    <${Top} page=${page} openJump=${() => setOpen("jump")} openHelp=${() => setOpen("help")} />
    <main class="main" id="main" data-page=${page} tabindex="-1" ref=${main}><${Banners} /><${Body} route=${route} page=${page} /></main>
    <${Status} />
    <${Toasts} />
    <${Actions} />
    ${open === "jump" && html`<${Jump} close=${close} />`}
    ${open === "help" && html`<${Help} close=${close} />`}`
}

if (read("theme")) document.documentElement.dataset.theme = read("theme")
const root = document.getElementById("app")
root.replaceChildren()
render(html`<${App} />`, root)
connect()
