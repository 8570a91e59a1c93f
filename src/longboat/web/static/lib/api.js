// Requests to the server, with one kind of error: what it said, and its hint.

let csrf = ""
export const setCsrf = (token) => {
  csrf = token
}

export class ApiError extends Error {
  constructor(status, message, hint) {
    super(message)
    this.status = status
    this.hint = hint
  }
}

async function ask(path, options) {
  let answer
  try {
    answer = await fetch(`api/${path}`, { credentials: "same-origin", cache: "no-store", ...options })
  } catch (error) {
    if (error.name === "AbortError") throw error
    throw new ApiError(0, "The dashboard's server does not answer.", "Start it again with longboat ui.")
  }
  let body = null
  try {
    body = await answer.json()
  } catch {
    // a proxy's page instead of JSON: the status has to do
  }
  if (!answer.ok || body === null) {
    throw new ApiError(answer.status, body?.error || `The server answered ${answer.status}.`, body?.hint || "")
  }
  return body
}

export const get = (path, signal) => ask(path, { signal })
export const post = (path, body = {}) =>
  ask(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Longboat-CSRF": csrf },
    body: JSON.stringify(body),
  })

export const runPath = (cluster, id) => `runs/${encodeURIComponent(cluster)}/${encodeURIComponent(id)}`

/** A query in which keys may be repeated; empty values are left out. */
export function search(pairs) {
  const query = new URLSearchParams()
  for (const [key, given] of Object.entries(pairs)) {
    for (const part of Array.isArray(given) ? given : [given]) {
      if (part !== "" && part !== null && part !== undefined) query.append(key, part)
    }
  }
  return query.toString()
}
