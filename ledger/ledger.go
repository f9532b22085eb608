// Package ledger has stores for the ledger of package svc, which records endpoints
// before they are created: see [svc.WithLedger].
//
//	store, err := ledger.Dir("/var/lib/deployer/ledger")
//	…
//	client, err := svc.NewClient(baseURL, svc.WithToken(token), svc.WithLedger(store))
//
// Begin with [Dir]: it needs only a folder, which may be on NFS. [SQLite] and [Postgres] use
// a table of a database, through database/sql and a driver of your choice. [Memory] is for
// tests. If you write a store, test it with package ledgertest.
package ledger

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"sync"

	"example.com/svc"
)

// name identifies a record by its key and its number.
type name struct {
	key string
	seq int64
}

func (n name) String() string { return fmt.Sprintf("record %d of key %s", n.seq, n.key) }

func inOrder(a, b name) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.seq, b.seq)) }

// medium keeps the texts of records.
type medium interface {
	// put stores a text durably. If that name has a text already, the error is fs.ErrExist.
	put(ctx context.Context, n name, text []byte) error
	// list calls found for each text of a key, in order. An empty key stands for all keys. If a
	// text cannot be read, found gets the reason as err.
	list(ctx context.Context, key string, found func(n name, text []byte, err error)) error
}

// store keeps records as JSON in a medium.
type store struct {
	medium
	place func(name) string // describes a record in error texts
}

var keys = regexp.MustCompile(`^[a-z0-9_-]{1,64}$`)

func (s store) Append(ctx context.Context, r svc.LedgerRecord) error {
	if !keys.MatchString(r.Key) || r.Seq < 1 {
		return fmt.Errorf("ledger: record %d of key %q: a key is 1 to 64 characters of a-z, 0-9, _ and -, and the first record is 1", r.Seq, r.Key)
	}
	n := name{r.Key, r.Seq}
	text, err := json.Marshal(r)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = s.put(ctx, n, text)
	}
	if err != nil {
		return fmt.Errorf("ledger: writing %s: %w", s.place(n), err)
	}
	return nil
}

func (s store) List(ctx context.Context, key string) (all []svc.LedgerRecord, err error) {
	var damaged []error
	err = s.list(ctx, key, func(n name, text []byte, err error) {
		var r svc.LedgerRecord
		if err == nil {
			err = json.Unmarshal(text, &r)
		}
		if err == nil && (r.Key != n.key || r.Seq != n.seq) {
			err = fmt.Errorf("it says that it is record %d of key %q", r.Seq, r.Key)
		}
		if err != nil {
			err = fmt.Errorf("%s is damaged: %w", s.place(n), err)
			damaged = append(damaged, &svc.LedgerError{Op: "list", Key: n.key, Err: err})
			return
		}
		all = append(all, r)
	})
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return all, fmt.Errorf("ledger: reading the records: %w", err)
	}
	return all, errors.Join(damaged...)
}

// Memory returns an empty store for tests. Its records are lost when the process ends.
func Memory() svc.LedgerStore {
	return store{&memory{texts: make(map[name][]byte)}, name.String}
}

type memory struct {
	mu    sync.Mutex
	texts map[name][]byte
}

func (m *memory) put(_ context.Context, n name, text []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.texts[n] != nil {
		return fs.ErrExist
	}
	m.texts[n] = text
	return nil
}

func (m *memory) list(_ context.Context, key string, found func(name, []byte, error)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range slices.SortedFunc(maps.Keys(m.texts), inOrder) {
		if key == "" || key == n.key {
			found(n, m.texts[n], nil)
		}
	}
	return nil
}

// SQLite returns a store in the table svc_ledger of an SQLite database. The table is created
// if it does not exist. You can use any driver. Each connection of db must wait for a locked
// database and must sync each commit. Set both in the data source name: if one is not set,
// the function SQLite returns an error. For modernc.org/sqlite the name is
//
//	file:ledger.db?_pragma=busy_timeout(10000)&_pragma=synchronous(FULL)
func SQLite(ctx context.Context, db *sql.DB) (svc.LedgerStore, error) {
	return openTable(ctx, db, `SELECT (SELECT timeout FROM pragma_busy_timeout) > 0 AND (SELECT synchronous FROM pragma_synchronous) >= 2`,
		"set busy_timeout, so that one process waits for another, and synchronous=FULL, so that a commit survives a power failure")
}

// Postgres returns a store in the table svc_ledger of a PostgreSQL database. The table is
// created if it does not exist. You can use any driver. If synchronous_commit is off, the
// function Postgres returns an error, since the server may then lose a commit.
func Postgres(ctx context.Context, db *sql.DB) (svc.LedgerStore, error) {
	return openTable(ctx, db, `SELECT current_setting('synchronous_commit') <> 'off'`,
		"set synchronous_commit=on, so that a commit survives a crash of the server")
}

// openTable runs the query safe, and fails unless it returns true. Then it creates the table if
// there is none.
func openTable(ctx context.Context, db *sql.DB, safe, advice string) (svc.LedgerStore, error) {
	t := store{table{db}, name.String}
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
	if _, again := t.List(ctx, "-"); again != nil { // if the table exists now, another process has created it
		return nil, errors.Join(again, err)
	}
	return t, nil
}

type table struct{ db *sql.DB }

func (t table) put(ctx context.Context, n name, text []byte) error {
	result, err := t.db.ExecContext(ctx, `INSERT INTO svc_ledger ("key", seq, record) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`, n.key, n.seq, string(text))
	if err != nil {
		return err
	}
	rows, err := result.RowsAffected()
	if err == nil && rows == 0 {
		return fs.ErrExist
	}
	return err
}

func (t table) list(ctx context.Context, key string, found func(name, []byte, error)) error {
	query, args := `SELECT "key", seq, record FROM svc_ledger`, []any(nil)
	if key != "" {
		query, args = query+` WHERE "key" = $1`, []any{key}
	}
	rows, err := t.db.QueryContext(ctx, query+` ORDER BY "key", seq`, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var n name
		var text []byte
		err := rows.Scan(&n.key, &n.seq, &text)
		found(n, text, err)
	}
	return rows.Err()
}
