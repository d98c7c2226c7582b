/** The HTTP side of a call: offer, answer, hang-up, readiness, configuration. */

import { httpCode } from '../core/problems.js';
import { keyHeaders } from './key.js';

/** Why a call did not come about, as a code of `core/problems.js`. */
export class CallError extends Error {
  /**
   * @param {string} code
   * @param {string} detail
   * @param {number|null} [retryAfterMs]
   * @param {string} [said] the server's own sentence
   */
  constructor(code, detail, retryAfterMs = null, said = '') {
    super(detail);
    this.code = code;
    this.detail = detail;
    this.retryAfterMs = retryAfterMs;
    this.said = said;
  }
}

/**
 * Send the offer and get the answer.
 * @param {string} sdp
 * @param {AbortSignal} signal
 * @returns {Promise<{sdp: string, location: string}>} location is '' if the server named none
 */
export async function postOffer(sdp, signal) {
  const key = keyHeaders();
  const response = await fetch('v1/realtime/calls', {
    method: 'POST',
    headers: { 'Content-Type': 'application/sdp', ...key },
    body: sdp,
    signal,
  }).catch((error) => {
    throw signal.aborted ? error : new CallError('server-down', String(error));
  });
  if (!response.ok) throw await refusal(response, 'Authorization' in key);
  const location = response.headers.get('Location') ?? '';
  return { sdp: await response.text(), location: location && new URL(location, response.url).href };
}

/**
 * @param {Response} response
 * @param {boolean} keyed a key was sent
 */
async function refusal(response, keyed) {
  const text = await response.text().catch(() => '');
  let code = '';
  let said = '';
  try {
    const { error } = JSON.parse(text);
    code = String(error?.code ?? error?.type ?? '');
    said = String(error?.message ?? '');
  } catch {
    // Not JSON: a proxy answered, and its own words are all there is.
  }
  const seconds = Number(response.headers.get('Retry-After'));
  const retryAfterMs = seconds > 0 ? Math.min(seconds, 120) * 1000 : null;
  const detail = `${response.status} ${said || text.slice(0, 300)}`.trim();
  return new CallError(httpCode(response.status, code, keyed), detail, retryAfterMs, said);
}

/**
 * End the call on the server. Survives the page; its failure changes nothing.
 * @param {string} location
 */
export function postHangup(location) {
  if (!location) return;
  fetch(`${location}/hangup`, { method: 'POST', keepalive: true, headers: keyHeaders() }).catch(() => {});
}

/** @returns {Promise<import('../core/types.js').Health>} */
export async function readHealth() {
  try {
    const response = await fetch('readyz', { cache: 'no-store', signal: AbortSignal.timeout(4000) });
    if (response.ok) return 'ready';
    if (response.status === 404) return 'unknown';
    const { status } = await response.json();
    return status === 'loading' || status === 'stopping' ? status : 'down';
  } catch {
    return 'down';
  }
}

/**
 * What the server keeps of calls, as everybody may know. Null if it could not be asked.
 * @returns {Promise<import('../core/types.js').Kept|null>}
 */
export async function readKept() {
  try {
    const response = await fetch('notice.json', { cache: 'no-store', signal: AbortSignal.timeout(4000) });
    if (response.status === 404) return { recording: false, transcripts: false };
    if (!response.ok) return null;
    const { recording, transcripts } = await response.json();
    return { recording: recording === true, transcripts: transcripts === true };
  } catch {
    return null;
  }
}

/**
 * What the server wants its pages to know. A server without it is a server without ICE servers.
 * @returns {Promise<{ice_servers: RTCIceServer[], version: string}>}
 */
export async function readConfig() {
  const nothing = { ice_servers: [], version: '' };
  try {
    const response = await fetch('client-config.json', {
      cache: 'no-store',
      headers: keyHeaders(),
      signal: AbortSignal.timeout(3000),
    });
    if (!response.ok) return nothing;
    const { ice_servers: servers, version } = await response.json();
    return { ice_servers: Array.isArray(servers) ? servers : [], version: String(version ?? '') };
  } catch {
    return nothing;
  }
}
