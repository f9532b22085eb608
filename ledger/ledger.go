// Package ledger has stores for the ledger of package svc, which records endpoints
// before they are created: see [svc.WithLedger].
//
//	store, err := ledger.Dir("/var/lib/deployer/ledger")
//	…
//	client, err := svc.NewClient(baseURL, svc.WithToken(token), svc.WithLedger(store))
//
// [Dir] needs nothing but a folder, which may be on NFS: it is the one to begin
// with. [SQLite] and [Postgres] use a table of a database, through database/sql and a
// driver of your choice. [Memory] is for tests. A store of your own has to pass
// package ledgertest.
package ledger

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"sync"

	"example.com/svc"
)

var keys = regexp.MustCompile(`^[a-z0-9_-]{1,64}$`)

// encode checks a record and makes its text.
func encode(ctx context.Context, r svc.LedgerRecord) ([]byte, error) {
	if !keys.MatchString(r.Key) || r.Seq < 1 {
		return nil, fmt.Errorf("ledger: record %d of key %q: a key is 1 to 64 characters of a-z, 0-9, _ and -, and the first record is 1", r.Seq, r.Key)
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("ledger: record %d of key %s: %w", r.Seq, r.Key, context.Cause(ctx))
	}
	return json.Marshal(r)
}

// decode reads the text of a record, unless err says why there is none. Its error is
// about the key, and says where the text is.
func decode(text []byte, key string, seq int64, where string, err error) (r svc.LedgerRecord, _ error) {
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err == nil && (r.Key != key || r.Seq != seq) {
		err = fmt.Errorf("it says that it is record %d of key %q", r.Seq, r.Key)
	}
	if err != nil {
		return r, &svc.LedgerError{Op: "list", Key: key, Err: fmt.Errorf("%s is damaged: %w", where, err)}
	}
	return r, nil
}

// Memory returns an empty store that ends with the process: for tests.
func Memory() svc.LedgerStore { return new(memory) }

type memory struct {
	mu      sync.Mutex
	records []svc.LedgerRecord // sorted by key and Seq
}

func (m *memory) Append(ctx context.Context, r svc.LedgerRecord) error {
	if _, err := encode(ctx, r); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	i, found := slices.BinarySearchFunc(m.records, r, func(a, b svc.LedgerRecord) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Seq, b.Seq))
	})
	if found {
		return fmt.Errorf("ledger: record %d of key %s: %w", r.Seq, r.Key, fs.ErrExist)
	}
	m.records = slices.Insert(m.records, i, r)
	return nil
}

func (m *memory) List(ctx context.Context, key string) ([]svc.LedgerRecord, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	other := func(r svc.LedgerRecord) bool { return key != "" && r.Key != key }
	return slices.DeleteFunc(slices.Clone(m.records), other), ctx.Err()
}

// SQLite returns a store in the table svc_ledger of an SQLite database. The table is
// created if it does not exist. Any driver will do. Each connection of db must wait for a
// locked database and must sync each commit, so set both in the data source name: SQLite
// fails if they are not set. For modernc.org/sqlite that is
//
//	file:ledger.db?_pragma=busy_timeout(10000)&_pragma=synchronous(FULL)
func SQLite(ctx context.Context, db *sql.DB) (svc.LedgerStore, error) {
	return openTable(ctx, db, `SELECT (SELECT timeout FROM pragma_busy_timeout) > 0 AND (SELECT synchronous FROM pragma_synchronous) >= 2`,
		"set busy_timeout, so that one process waits for another, and synchronous=FULL, so that a commit survives a power failure")
}

// Postgres returns a store in the table svc_ledger of a PostgreSQL database. The table
// is created if it does not exist. Any driver will do. Postgres fails if
// synchronous_commit is off, since the server may then lose a commit.
func Postgres(ctx context.Context, db *sql.DB) (svc.LedgerStore, error) {
	return openTable(ctx, db, `SELECT current_setting('synchronous_commit') <> 'off'`,
		"set synchronous_commit=on, so that a commit survives a crash of the server")
}

type table struct{ db *sql.DB }

// openTable makes sure that the database is safe, as the query tells, and that the
// table is there.
func openTable(ctx context.Context, db *sql.DB, safe, advice string) (svc.LedgerStore, error) {
	t := table{db}
	var ok bool
	if err := db.QueryRowContext(ctx, safe).Scan(&ok); err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	if !ok {
		return nil, errors.New("ledger: the settings of the database are not safe: " + advice)
	}
	if _, err := t.List(ctx, "-"); err == nil {
		return t, nil
	}
	_, err := db.ExecContext(ctx, `CREATE TABLE svc_ledger ("key" VARCHAR(64) NOT NULL, seq BIGINT NOT NULL, record TEXT NOT NULL, PRIMARY KEY ("key", seq))`)
	if _, again := t.List(ctx, "-"); again != nil { // if it is there now, another process has created it
		return nil, errors.Join(again, err)
	}
	return t, nil
}

func (t table) Append(ctx context.Context, r svc.LedgerRecord) error {
	text, err := encode(ctx, r)
	if err != nil {
		return err
	}
	result, err := t.db.ExecContext(ctx, `INSERT INTO svc_ledger ("key", seq, record) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`, r.Key, r.Seq, string(text))
	if err == nil {
		var rows int64
		if rows, err = result.RowsAffected(); err == nil && rows == 0 {
			err = fs.ErrExist
		}
	}
	if err != nil {
		return fmt.Errorf("ledger: record %d of key %s: %w", r.Seq, r.Key, err)
	}
	return nil
}

func (t table) List(ctx context.Context, key string) (all []svc.LedgerRecord, err error) {
	query, args := `SELECT "key", seq, record FROM svc_ledger`, []any(nil)
	if key != "" {
		query, args = query+` WHERE "key" = $1`, []any{key}
	}
	rows, err := t.db.QueryContext(ctx, query+` ORDER BY "key", seq`, args...)
	if err != nil {
		return nil, fmt.Errorf("ledger: the table svc_ledger cannot be read: %w", err)
	}
	defer rows.Close()
	var damaged []error
	for rows.Next() {
		var text []byte
		var seq int64
		err := rows.Scan(&key, &seq, &text)
		r, err := decode(text, key, seq, fmt.Sprintf("row %d of key %s in the table svc_ledger", seq, key), err)
		if damaged = append(damaged, err); err == nil {
			all = append(all, r)
		}
	}
	if err := rows.Err(); err != nil {
		return all, fmt.Errorf("ledger: the table svc_ledger cannot be read: %w", err)
	}
	return all, errors.Join(damaged...)
}
