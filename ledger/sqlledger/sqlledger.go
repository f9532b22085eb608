// Package sqlledger provides stores for the ledger of package ledger in SQLite and in PostgreSQL,
// through database/sql and a driver of your choice.
package sqlledger

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"example.com/svc/internal/poll"
	"example.com/svc/ledger"
)

const sqliteAdvice = `sqlledger: the settings of the database are not safe (%s): set them in the data source name, so that each ` +
	`connection has them; for modernc.org/sqlite: file:ledger.db?_pragma=busy_timeout(10000)&_pragma=synchronous(FULL)`

// SQLite returns a store in the table svc_ledger of an SQLite database. The table is created
// if it does not exist, unless [ledger.MustExist] is given. With [ledger.MustNotExist], it must not exist.
// You can use any driver. The database
// must be a file. Each connection of db must wait for a locked database, must sync each commit, and
// must have a journal on the disk. Set this in the data source name: the function SQLite checks two
// connections. For modernc.org/sqlite the name is
//
//	file:ledger.db?_pragma=busy_timeout(10000)&_pragma=synchronous(FULL)
//
// If the file of the database is replaced while it is open, every Append fails.
func SQLite(ctx context.Context, db *sql.DB, opts ...ledger.Option) (ledger.Store, error) {
	t := &table{db: db}
	if err := t.check(ctx, min(2, cmp.Or(db.Stats().MaxOpenConnections, 2))); err != nil {
		return nil, err
	}
	return t, t.open(ctx, opts)
}

// check checks the settings of n connections, which it holds at the same time.
func (t *table) check(ctx context.Context, n int) error {
	c, err := t.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("sqlledger: %w", err)
	}
	defer func() { _ = c.Close() }() // returns it to the pool
	if err = t.checkSQLite(ctx, c); err == nil && n > 1 {
		err = t.check(ctx, n-1)
	}
	return err
}

// checkSQLite checks the settings of a connection, and stores the file of the database.
func (t *table) checkSQLite(ctx context.Context, c *sql.Conn) (err error) {
	var timeout, synchronous int
	var journal string
	for pragma, value := range map[string]any{"busy_timeout": &timeout, "synchronous": &synchronous, "journal_mode": &journal} {
		if err := c.QueryRowContext(ctx, "PRAGMA "+pragma).Scan(value); err != nil {
			return fmt.Errorf("sqlledger: reading %s: %w", pragma, err)
		}
	}
	var seq, name any
	if err := c.QueryRowContext(ctx, "PRAGMA database_list").Scan(&seq, &name, &t.path); err != nil {
		return fmt.Errorf("sqlledger: reading the name of the file: %w", err)
	}
	switch journal = strings.ToLower(journal); {
	case t.path == "":
		return fmt.Errorf(sqliteAdvice, "the database is not a file")
	case timeout <= 0:
		return fmt.Errorf(sqliteAdvice, "busy_timeout is 0: one process does not wait for another")
	case synchronous < 2:
		return fmt.Errorf(sqliteAdvice, "synchronous is less than FULL: a commit may be lost when the power fails")
	case journal == "off" || journal == "memory":
		return fmt.Errorf(sqliteAdvice, "journal_mode is "+journal+": the database may be damaged when a process dies")
	}
	if t.file, err = os.Stat(t.path); err != nil {
		return fmt.Errorf("sqlledger: %w", err)
	}
	return nil
}

// Postgres returns a store in the table svc_ledger of a PostgreSQL database. The table is
// created if it does not exist, unless [ledger.MustExist] is given. With [ledger.MustNotExist], it must
// not exist. You can use any driver. If
// synchronous_commit is off, the function Postgres returns an error, since the server may then lose
// a commit.
func Postgres(ctx context.Context, db *sql.DB, opts ...ledger.Option) (ledger.Store, error) {
	t := &table{db: db}
	var ok bool
	if err := db.QueryRowContext(ctx, `SELECT current_setting('synchronous_commit') <> 'off'`).Scan(&ok); err != nil {
		return nil, fmt.Errorf("sqlledger: %w", err)
	}
	if !ok {
		return nil, errors.New("sqlledger: the settings of the database are not safe: set synchronous_commit=on, so that a commit survives a crash of the server")
	}
	return t, t.open(ctx, opts)
}

// table is the table svc_ledger.
type table struct {
	db   *sql.DB
	path string      // path of an SQLite database; empty for PostgreSQL
	file os.FileInfo // the file that path named when the database was opened
}

// open creates the table if there is none, and checks that records can be written. With
// [ledger.MustExist] it writes nothing.
func (t *table) open(ctx context.Context, opts []ledger.Option) error {
	_, err := t.List(ctx, "-")
	switch mustExist := slices.Contains(opts, ledger.MustExist()); {
	case err == nil && mustExist:
		return nil
	case err == nil:
		err = fs.ErrExist
	case !is(err, "42P01") && !strings.Contains(err.Error(), "no such table"): // it may exist, and be damaged or not readable
		return err
	case mustExist:
		return fmt.Errorf("sqlledger: there is no ledger in this database (%w): %w", fs.ErrNotExist, err)
	default:
		_, err = t.db.ExecContext(ctx, `CREATE TABLE svc_ledger ("key" VARCHAR(64) NOT NULL, seq BIGINT NOT NULL, record TEXT NOT NULL, PRIMARY KEY ("key", seq))`)
		if _, again := t.List(ctx, "-"); again != nil { // if the table exists now, another process has created it
			return errors.Join(again, err)
		}
	}
	// No row is inserted, but a database that is read-only, or a user who may not write, is refused.
	if _, err := t.db.ExecContext(ctx, `INSERT INTO svc_ledger ("key", seq, record) SELECT '-', 0, '' WHERE 1 = 0`); err != nil {
		return fmt.Errorf("sqlledger: the table svc_ledger cannot be written: %w", err)
	}
	switch {
	case err == nil, !slices.Contains(opts, ledger.MustNotExist()):
		return nil
	}
	return fmt.Errorf("sqlledger: this database has a ledger: %w", fs.ErrExist)
}

const insert = `INSERT INTO svc_ledger ("key", seq, record) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`

func place(key string, seq int64) string { return fmt.Sprintf("record %d of key %s", seq, key) }

func (t *table) Append(ctx context.Context, r ledger.Record) error {
	text, err := ledger.Encode(r)
	if err = cmp.Or(err, t.sameFile()); err == nil {
		err = t.insert(ctx, r, string(text))
	}
	return failed("writing "+place(r.Key, r.Seq), err)
}

// failed adds to an error, which may be nil, what could not be done.
func failed(doing string, err error) error {
	if err != nil {
		err = fmt.Errorf("sqlledger: %s: %w", doing, err)
	}
	return err
}

// sameFile returns an error if the file of the database was replaced or removed, since other
// processes do not see what is written to it.
func (t *table) sameFile() error {
	if t.path == "" {
		return nil
	}
	file, err := os.Stat(t.path)
	if err == nil && !os.SameFile(file, t.file) {
		err = fmt.Errorf("the database file %s was replaced after it was opened", t.path)
	}
	return err
}

// insert writes a record. It retries an error after which the server is known to have written nothing, because of other
// transactions: a serialization failure, a deadlock, or a lock that was not available.
func (t *table) insert(ctx context.Context, r ledger.Record, text string) error {
	for delay := 10 * time.Millisecond; ; delay *= 2 {
		result, err := t.db.ExecContext(ctx, insert, r.Key, r.Seq, text)
		if err == nil {
			rows, err := result.RowsAffected()
			if err == nil && rows == 0 {
				return fs.ErrExist
			}
			return err
		}
		switch {
		case !is(err, "40001", "40P01", "55P03"), delay > time.Second, poll.Sleep(ctx, delay) != nil:
			return err
		}
	}
}

// is reports whether the SQLSTATE of an error is one of codes.
func is(err error, codes ...string) bool {
	var state interface{ SQLState() string }
	return errors.As(err, &state) && slices.Contains(codes, state.SQLState())
}

func (t *table) List(ctx context.Context, key string) ([]ledger.Record, error) {
	query, args := `SELECT "key", seq, record FROM svc_ledger`, []any(nil)
	if key != "" {
		query, args = query+` WHERE "key" = $1`, []any{key}
	}
	var all []ledger.Record
	var damaged []error
	err := t.query(ctx, query+` ORDER BY "key", seq`, args, func(rows *sql.Rows) {
		r, err := scan(rows)
		if err != nil {
			damaged = append(damaged, err)
			return
		}
		all = append(all, r)
	})
	return all, cmp.Or(err, errors.Join(damaged...))
}

// query calls f for each row.
func (t *table) query(ctx context.Context, query string, args []any, f func(*sql.Rows)) error {
	rows, err := t.db.QueryContext(ctx, query, args...)
	if err == nil {
		defer rows.Close()
		for rows.Next() {
			f(rows)
		}
		err = rows.Err()
	}
	return failed("reading the records", err)
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

var escape = strings.NewReplacer(`!`, `!!`, `%`, `!%`, `_`, `!_`)

// Find searches the text of the records for the ID, in upper or lower case.
func (t *table) Find(ctx context.Context, id string) (keys []string, err error) {
	field, err := ledger.Encode(ledger.Record{Key: "k", Seq: 1, ServiceID: id})
	if err != nil {
		return nil, err
	}
	_, after, _ := strings.Cut(string(field), `"service_id":`)
	pattern := "%" + escape.Replace(strings.ToLower(`"service_id":`+strings.TrimSuffix(after, "}"))) + "%"
	err = t.query(ctx, `SELECT DISTINCT "key" FROM svc_ledger WHERE lower(record) LIKE $1 ESCAPE '!'`, []any{pattern}, func(rows *sql.Rows) {
		var key string
		if rows.Scan(&key) == nil {
			keys = append(keys, key)
		}
	})
	return keys, err
}

func (t *table) Prune(ctx context.Context, key string, upTo int64) error {
	_, err := t.db.ExecContext(ctx, `DELETE FROM svc_ledger WHERE "key" = $1 AND seq <= $2`, key, upTo)
	return failed("removing records", err)
}
