// What all pages know: the runs, the sources and their age, whether the server is there. One stream of changes.
import { get, setCsrf } from "./api.js"
import { setCurrency } from "./format.js"
import { useEffect, useState } from "./html.js"

const APPLY_MS = 150 // a change is drawn at once, those that follow it are gathered and drawn together after so long
const RETRY_MS = [500, 1000, 2000, 4000, 8000] // after the stream is lost: quick at first, then a load nobody notices
const CHANGED_MS = 4000 // a phase that has just changed is bold for so long

export const store = {
  me: null, // /api/state
  runs: new Map(), // "cluster/id" -> row
  clusters: [],
  seen: {}, // cluster -> when it told something
  loaded: false,
  error: null, // why the first load failed
  lost: null, // since when the stream is lost
  changedAt: new Map(), // key -> when its phase changed
  version: 0,
}
export const key = (row) => `${row.cluster}/${row.id}`
export const run = (cluster, id) => store.runs.get(`${cluster}/${id}`)
/** The price of a GPU for an hour: 0 is one's own, null not known. */
export const gpuHour = (name) => store.clusters.find((cluster) => cluster.name === name)?.gpu_hour ?? null
/** A command, or a step that begins with one, with the options by which it means this place. */
export const placed = (name, text) => {
  const options = store.clusters.find((cluster) => cluster.name === name)?.options
  return options ? text.replace(/^longboat [^:]*/, (command) => `${command} ${options}`) : text
}
export const clusterTitle = (name) => store.clusters.find((cluster) => cluster.name === name)?.title || name

const listeners = new Set()
const runListeners = new Set()
let waiting = []
let timer = 0
let applied = 0
let stream = null
let cursor = ""
let failures = 0

function tell() {
  store.version += 1
  for (const listener of listeners) listener()
}

export function useStore() {
  const [, redraw] = useState(0)
  useEffect(() => {
    const listener = () => redraw(store.version)
    listeners.add(listener)
    return () => listeners.delete(listener)
  }, [])
  return store
}

/** Calls back when this run changed. */
export function useRunChanges(name, callback) {
  useEffect(() => {
    const listener = (keys) => keys.has(name) && callback()
    runListeners.add(listener)
    return () => runListeners.delete(listener)
  }, [name, callback])
}

function apply() {
  clearTimeout(timer)
  timer = 0
  applied = performance.now()
  const keys = new Set()
  for (const { changed = [], removed = [] } of waiting) {
    for (const row of changed) {
      const name = key(row)
      const before = store.runs.get(name)
      if (before?.phase !== row.phase) store.changedAt.set(name, Date.now())
      store.runs.set(name, row)
      keys.add(name)
    }
    for (const row of removed) {
      store.runs.delete(key(row))
      keys.add(key(row))
    }
  }
  waiting = []
  for (const [name, at] of store.changedAt) if (Date.now() - at > CHANGED_MS) store.changedAt.delete(name)
  tell()
  for (const listener of runListeners) listener(keys)
}

export function put(row) {
  waiting.push({ changed: [row] })
  apply()
}

async function load() {
  const [me, answer] = await Promise.all([get("state"), get("runs")])
  setCsrf(me.csrf)
  setCurrency(me.currency)
  store.me = me
  store.runs = new Map(answer.runs.map((row) => [key(row), row]))
  store.clusters = answer.clusters || me.clusters
  store.seen = Object.fromEntries(store.clusters.map((cluster) => [cluster.name, cluster.seen]))
  store.loaded = true
  store.error = null
  store.lost = null
  cursor = answer.cursor
  failures = 0
  tell()
  for (const listener of runListeners) listener(new Set(store.runs.keys()))
}

function listen() {
  stream?.close()
  stream = new EventSource(`api/events?since=${encodeURIComponent(cursor)}`)
  const on = (name, handle) => stream.addEventListener(name, (event) => handle(JSON.parse(event.data)))
  on("runs", (data) => {
    waiting.push(data)
    timer ||= setTimeout(apply, Math.max(0, applied + APPLY_MS - performance.now()))
  })
  on("clusters", ({ clusters }) => {
    store.clusters = clusters
    tell()
  })
  on("heartbeat", ({ seen }) => {
    Object.assign(store.seen, seen)
    tell()
  })
  on("reset", () => connect())
  stream.onopen = () => {
    failures = 0
    if (store.lost) {
      store.lost = null
      tell()
    }
  }
  stream.onerror = () => again()
}

function again() {
  stream?.close() // its own retry gives up on an answer that is no stream; ours does not
  store.lost ??= Date.now() / 1000
  tell()
  setTimeout(connect, RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)])
}

let connecting = false
export async function connect() {
  if (connecting) return
  connecting = true
  stream?.close()
  try {
    await load()
    listen()
  } catch (error) {
    store.error = error
    if (error.status === 401) {
      store.lost = null
      tell()
    } else again()
  } finally {
    connecting = false
  }
}
