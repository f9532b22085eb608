// Package ledgerdb tests the SQL stores of package ledger with real databases. It is
// a module of its own, so that nobody who uses the library loads their drivers.
package ledgerdb
