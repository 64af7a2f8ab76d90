package events

// Each action of the ticker runs under an advisory lock of its own transaction,
// so that any number of tickers may run. The locks have two numbers. The first
// is lockTicks for all of them ("pgqu" in ASCII); the second is the queue's
// number for a tick, and one of these for what concerns the whole database.
const (
	lockTicks int32 = 0x70677175

	lockRetries     int32 = -1 // pgque.maint_retry_events()
	lockMaintenance int32 = -2 // pgque.maint(), maint_rotate_tables_step1(queue)
	lockStep2       int32 = -3 // pgque.maint_rotate_tables_step2()
)
