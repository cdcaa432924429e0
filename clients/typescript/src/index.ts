/** A typed client of Shoal's sessions. */

export { Sessions } from './client.ts'
export { ShoalError } from './transport.ts'
export type { Event, Options } from './transport.ts'
export type * from './models.ts'
