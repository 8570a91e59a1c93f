// preact, its hooks and htm in one place: html`<p>${text}</p>`. Values become text nodes or properties, never HTML.
import { Component, h, render } from "../vendor/preact.js"
import htm from "../vendor/htm.js"

export { Component, render }
export { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/hooks.js"
export const html = htm.bind(h)
