// Package sqlledger has stores for the ledger of package ledger in SQLite and in PostgreSQL, through
// database/sql and a driver of your choice.
package sqlledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"

	"example.com/svc/ledger"
)

// SQLite returns a store in the table svc_ledger of an SQLite database. The table is created
// if it does not exist. You can use any driver. Each connection of db must wait for a locked
// database and must sync each commit. Set both in the data source name: if one is not set,
// the function SQLite returns an error. For modernc.org/sqlite the name is
//
//	file:ledger.db?_pragma=busy_timeout(10000)&_pragma=synchronous(FULL)
func SQLite(ctx context.Context, db *sql.DB) (ledger.Store, error) {
	return openTable(ctx, db, `SELECT (SELECT timeout FROM pragma_busy_timeout) > 0 AND (SELECT synchronous FROM pragma_synchronous) >= 2`,
		"set busy_timeout, so that one process waits for another, and synchronous=FULL, so that a commit survives a power failure")
}

// Postgres returns a store in the table svc_ledger of a PostgreSQL database. The table is
// created if it does not exist. You can use any driver. If synchronous_commit is off, the
// function Postgres returns an error, since the server may then lose a commit.
func Postgres(ctx context.Context, db *sql.DB) (ledger.Store, error) {
	return openTable(ctx, db, `SELECT current_setting('synchronous_commit') <> 'off'`,
		"set synchronous_commit=on, so that a commit survives a crash of the server")
}

// openTable runs the query safe, and fails unless it returns true. Then it creates the table if
// there is none.
func openTable(ctx context.Context, db *sql.DB, safe, advice string) (ledger.Store, error) {
	t := table{db}
	var ok bool
	if err := db.QueryRowContext(ctx, safe).Scan(&ok); err != nil {
		return nil, fmt.Errorf("sqlledger: %w", err)
	}
	if !ok {
		return nil, errors.New("sqlledger: the settings of the database are not safe: " + advice)
	}
	if _, err := t.List(ctx, "-"); err == nil {
		return t, nil
	}
	_, err := db.ExecContext(ctx, `CREATE TABLE svc_ledger ("key" VARCHAR(64) NOT NULL, seq BIGINT NOT NULL, record TEXT NOT NULL, PRIMARY KEY ("key", seq))`)
	if _, again := t.List(ctx, "-"); again != nil { // if the table exists now, another process has created it
		return nil, errors.Join(again, err)
	}
	return t, nil
}

type table struct{ db *sql.DB }

func place(key string, seq int64) string { return fmt.Sprintf("record %d of key %s", seq, key) }

func (t table) Append(ctx context.Context, r ledger.Record) error {
	text, err := ledger.Encode(r)
	if err == nil {
		err = t.insert(ctx, r, string(text))
	}
	if err != nil {
		return fmt.Errorf("sqlledger: writing %s: %w", place(r.Key, r.Seq), err)
	}
	return nil
}

func (t table) insert(ctx context.Context, r ledger.Record, text string) error {
	result, err := t.db.ExecContext(ctx, `INSERT INTO svc_ledger ("key", seq, record) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`, r.Key, r.Seq, text)
	if err != nil {
		return err
	}
	rows, err := result.RowsAffected()
	if err == nil && rows == 0 {
		return fs.ErrExist
	}
	return err
}

func (t table) List(ctx context.Context, key string) ([]ledger.Record, error) {
	query, args := `SELECT "key", seq, record FROM svc_ledger`, []any(nil)
	if key != "" {
		query, args = query+` WHERE "key" = $1`, []any{key}
	}
	rows, err := t.db.QueryContext(ctx, query+` ORDER BY "key", seq`, args...)
	if err != nil {
		return nil, fmt.Errorf("sqlledger: reading the records: %w", err)
	}
	defer rows.Close()
	var all []ledger.Record
	var damaged []error
	for rows.Next() {
		r, err := scan(rows)
		if err != nil {
			damaged = append(damaged, err)
			continue
		}
		all = append(all, r)
	}
	if err := rows.Err(); err != nil {
		return all, fmt.Errorf("sqlledger: reading the records: %w", err)
	}
	return all, errors.Join(damaged...)
}

func scan(rows *sql.Rows) (ledger.Record, error) {
	var key string
	var seq int64
	var text []byte
	if err := rows.Scan(&key, &seq, &text); err != nil {
		return ledger.Record{}, ledger.Damage(key, place(key, seq), err)
	}
	return ledger.Decode(key, seq, place(key, seq), text)
}
