//go:build race

package ledger

// The rules of the ledger are pure functions, in which the race detector finds nothing. With
// the detector, all orders with three crashes take three minutes.
func init() { mostCrashes = 1 }
