/**
 * The shapes that the page is made of. Types only: nothing here runs.
 *
 * The screen is a function of one `State`, and the state is a fold of `Action`s. Times are
 * milliseconds of one monotonic clock (`performance.now()`), never dates, unless named `...Date`.
 */

/**
 * What the call is doing, exactly one at a time; mirrored to `<main data-phase>`.
 * @typedef {'idle'|'blocked'|'asking'|'connecting'|'listening'|'userSpeaking'|'thinking'
 *   |'assistantSpeaking'|'interrupted'|'reconnecting'|'error'|'ended'} Phase
 */

/**
 * What can move the phase.
 * @typedef {'start'|'startText'|'block'|'granted'|'connected'|'speechStarted'|'speechStopped'
 *   |'replyExpected'|'replyEnded'|'audioStarted'|'audioEnded'|'audioCleared'|'quiet'|'speaking'
 *   |'dropped'|'fail'|'hangUp'} Signal
 */

/** @typedef {'voice'|'text'} Mode */
/** @typedef {'none'|'live'|'muted'|'lost'} Mic */
/** @typedef {'offer'|'network'|'channel'|'session'} Step the leg of connecting that is under way */
/** @typedef {'unknown'|'ready'|'loading'|'stopping'|'down'} Health */

/**
 * @typedef {'sending'|'transcribing'|'streaming'|'done'|'interrupted'|'stopped'|'incomplete'|'failed'} RowStatus
 */

/**
 * One line of the conversation.
 * @typedef {object} Row
 * @property {string} id the item's id on the wire
 * @property {number} epoch the connection that brought it
 * @property {'user'|'assistant'|'tool'|'note'} role
 * @property {RowStatus} status
 * @property {string} text everything known of it, heard or not
 * @property {boolean} voice revealed by the caption clock rather than at once
 * @property {number|null} heard how many characters were heard; null while the clock decides
 * @property {string|null} responseId
 * @property {number|null} firstSoundMs from the end of the user's turn to the first sound of this reply
 * @property {string} reason why it stopped, in words; or the result of a tool
 * @property {string} name of the tool
 * @property {number} atDate when it began, as a date (ms since 1970)
 */

/** @typedef {'auto'|'light'|'dark'} Theme */
/** @typedef {'short'|'medium'|'long'} Pause */

/**
 * @typedef {object} Settings
 * @property {string} voice '' leaves the choice to the server
 * @property {Pause} pause how long a silence ends the user's turn
 * @property {boolean} atOnce show the reply's text at once instead of following the voice
 * @property {Theme} theme
 * @property {boolean} calm keep the picture still
 * @property {boolean} keys single-letter shortcuts
 */

/** @typedef {'retry'|'text'|'leave'|'hear'|'dismiss'} ProblemAction */

/**
 * Something that went wrong, and the way out of it.
 * @typedef {object} Problem
 * @property {string} code
 * @property {string} title
 * @property {string} cause
 * @property {string[]} remedy numbered steps; may be empty
 * @property {{action: ProblemAction, label: string}[]} buttons the first is the best one
 * @property {string} detail what a developer wants to know
 * @property {number|null} retryAt when the page tries again by itself
 */

/**
 * What the server keeps of calls.
 * @typedef {object} Kept
 * @property {boolean} recording their sound
 * @property {boolean} transcripts what was said
 */

/**
 * The reply that is being played.
 * @typedef {object} Playing
 * @property {string} responseId
 * @property {number} startedAt
 * @property {number|null} frozenAt set when the user spoke into it
 * @property {boolean} heardSound the first loud frame has come out of the speaker
 */

/**
 * @typedef {object} State
 * @property {Phase} phase
 * @property {number} phaseAt
 * @property {Mode} mode
 * @property {Mic} mic
 * @property {boolean} outputBlocked the browser refused to play
 * @property {Health} health
 * @property {number} epoch
 * @property {Step} step
 * @property {string} waitingFor why the call is not up again yet, a code of `problems.js`
 * @property {boolean} fresh the next connection does not continue the conversation on screen
 * @property {number|null} callAt when the call was connected
 * @property {number|null} callMs how long the last call took
 * @property {{id: string, model: string, voice: string}|null} session
 * @property {Row[]} rows
 * @property {Playing|null} playing
 * @property {string|null} activeResponse being generated now
 * @property {boolean} userTalking
 * @property {number|null} expectingAt since when a turn waits for an answer that has not begun
 * @property {boolean} emptyTurn the turn that is waited on had no words
 * @property {number|null} turnEndAt when the user's last turn ended, by the best clock at hand
 * @property {number} charsPerSecond of the reply's speech, learned from finished replies
 * @property {number[]} latenciesMs first sounds of the last 20 answers
 * @property {string} note a quiet remark under the state words
 * @property {string} toolName of the tool in use
 * @property {boolean} stopping the server has said that it ends this connection soon
 * @property {Problem|null} problem
 * @property {Kept} kept
 * @property {Settings} settings
 */

/** @typedef {{type: string, [key: string]: any}} WireEvent one Realtime event, either direction */

/**
 * @typedef {{type: 'start', mode: Mode, now: number}
 *   | {type: 'block', problem: Problem, now: number}
 *   | {type: 'kept', kept: Kept, now: number}
 *   | {type: 'micGranted', now: number}
 *   | {type: 'connecting', epoch: number, now: number}
 *   | {type: 'step', step: Step, epoch: number, now: number}
 *   | {type: 'server', event: WireEvent, epoch: number, now: number, date: number, loudAt: number|null}
 *   | {type: 'textSent', id: string, text: string, now: number, date: number}
 *   | {type: 'stop', now: number}
 *   | {type: 'firstSound', now: number}
 *   | {type: 'mic', mic: Mic, now: number}
 *   | {type: 'output', blocked: boolean, now: number}
 *   | {type: 'health', health: Health, now: number}
 *   | {type: 'wait', problem: Problem, now: number}
 *   | {type: 'fail', problem: Problem, now: number}
 *   | {type: 'hangUp', now: number}
 *   | {type: 'settings', patch: Partial<Settings>, now: number}
 *   | {type: 'dismiss', now: number}
 *   | {type: 'tick', now: number}} Action
 */

export {};
