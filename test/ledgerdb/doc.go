// Package ledgerdb tests the SQL stores of package ledger with real databases. It is a
// separate module, so that programs that use the library do not depend on the database
// drivers.
package ledgerdb
