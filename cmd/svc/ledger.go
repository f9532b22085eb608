package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"example.com/svc"
	"example.com/svc/internal/lazy"
	"example.com/svc/ledger"
	"example.com/svc/ledger/sqlledger"
)

const shownDefault = "svc-ledger in $XDG_STATE_HOME or ~/.local/state"

// place is the location of a ledger.
type place struct {
	driver   string // "folder", "sqlite", "postgres"; or "none" if there is no ledger
	name     string // full path of the folder or file, or the connection string
	shown    string // as all texts and documents show it: without user, password and parameters but the host
	usable   string // as a command line can have it; empty if it may hold a secret
	explicit bool   // named by --ledger or SVC_LEDGER: the ledger must exist
}

// noLedgerError is returned when there is no ledger at the place where one should be.
type noLedgerError struct{ place place }

func (e noLedgerError) Error() string {
	text := "there is no ledger at " + e.place.shown
	switch info, err := os.Stat(e.place.name); {
	case e.place.driver != "sqlite" || err != nil:
	case info.Size() == 0:
		text += ": the file is empty"
	default:
		text += ": the file is a database without one"
	}
	return text
}

var errLedgerNone = errors.New("this command needs a ledger, but --ledger or SVC_LEDGER is none")

// findLedger reads --ledger and SVC_LEDGER.
func findLedger(flag string) (p place, err error) {
	text, source := flag, "--ledger"
	if text == "" {
		text, source = os.Getenv("SVC_LEDGER"), "SVC_LEDGER"
	}
	if text == "" {
		dir, err := defaultLedger()
		return place{driver: "folder", name: dir, shown: dir, usable: dir}, err
	}
	if text == "none" {
		return place{driver: "none", shown: text, usable: text}, nil
	}
	if scheme, _, ok := strings.Cut(text, "://"); ok && (scheme == "postgres" || scheme == "postgresql") {
		p := place{driver: "postgres", name: text, explicit: true}
		p.shown, p.usable, err = withoutSecrets(text)
		return p, err
	}
	path, isFile := strings.CutPrefix(text, "sqlite:")
	full := filepath.IsAbs(path) || path == "~" || strings.HasPrefix(path, "~/")
	if connection().MatchString(path) || !full && address().MatchString(path) {
		return place{}, fmt.Errorf("%s is neither the full path of a folder, nor sqlite:FILE, nor postgres://… Its value is not shown, since it may hold a password", source)
	}
	path, err = fullPath(path, source)
	if err != nil {
		return place{}, err
	}
	if isFile {
		return place{"sqlite", path, "sqlite:" + path, "sqlite:" + path, true}, nil
	}
	return place{"folder", path, path, path, true}, nil
}

// findLedger finds the ledger of the command. It warns if SVC_LEDGER is set and empty, as a secret is that a
// pipeline does not have: then the default ledger is used, which knows nothing of what runs.
func (t *tool) findLedger() (place, error) {
	p, err := findLedger(t.flags.ledger)
	_, set := os.LookupEnv("SVC_LEDGER")
	t.mu.Lock()
	defer t.mu.Unlock()
	if set && !p.explicit && err == nil && p.driver == "folder" && t.current != nil { // nil: a shell completes words
		t.talk.warn("SVC_LEDGER is set, but empty: the ledger is the default one, %s", p.shown)
	}
	return p, err
}

// connection matches what looks like a connection string, and not like a path.
var connection = lazy.Regexp(`(?i)://|postgres(ql)?:|password|_key=`)

// address matches a relative path that may be a mistyped connection string.
var address = lazy.Regexp(`[@:=?]|//|^~[^/\\]`)

// ofPlace are the parameters of a connection string that name the server and the database: they win over its other parts.
var ofPlace = []string{"host", "port", "dbname", "database"}

// harmless are the parameters that hold no secret, with ofPlace: a text may have them.
var harmless = []string{"sslmode", "connect_timeout", "application_name", "target_session_attrs", "search_path", "client_encoding", "timezone"}

// withoutSecrets returns a connection string as each text shows it: without its user and parameters, and then those of ofPlace
// in brackets. The library removes users and queries from what it shows, so that another form would be a second one. usable is
// the connection string if it has neither a password nor a parameter that may hold one, and else empty.
func withoutSecrets(dsn string) (shown, usable string, err error) {
	u, err := url.Parse(dsn)
	broken := err != nil // the error of url.Parse would show the password
	if !broken {         // a / or ? of the password would end the host
		broken = strings.Contains(u.Path, "@") || u.User == nil && strings.Contains(u.RawQuery+u.Fragment, "@")
	}
	if broken {
		return "", "", errors.New("the connection string of the ledger is not a URL: escape special characters of the password with %XX")
	}
	query, badly := url.ParseQuery(u.RawQuery)
	_, secret := u.User.Password()
	secret = secret || badly != nil || u.Fragment != ""
	for name := range query {
		secret = secret || !slices.Contains(slices.Concat(ofPlace, harmless), name)
	}
	if !secret {
		usable = dsn
	}
	u.User, u.RawQuery, u.ForceQuery, u.Fragment = nil, "", false, ""
	var server []string
	for _, name := range ofPlace {
		if value := query.Get(name); value != "" {
			server = append(server, name+"="+printable(value))
		}
	}
	if shown = u.String(); len(server) > 0 {
		shown += " (" + strings.Join(server, ", ") + ")"
	}
	return shown, usable, nil
}

// fullPath expands ~. A relative path is allowed in a flag, but not in the environment: there
// each folder would have another ledger.
func fullPath(path, source string) (string, error) {
	if rest, ok := strings.CutPrefix(path, "~"); ok {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("%s: ~ cannot be expanded: use the full path", source)
		}
		path = home + rest
	}
	switch {
	case path == "":
		return "", fmt.Errorf("%s: the path is empty", source)
	case source != "--ledger" && !filepath.IsAbs(path):
		return "", fmt.Errorf("%s is a relative path, so each working directory would have its own ledger: use the full path", source)
	}
	return filepath.Abs(path)
}

// defaultLedger returns the default folder of the ledger: svc-ledger, in the folder where the
// system keeps the state of programs.
func defaultLedger() (string, error) {
	dir, err := os.Getenv("XDG_STATE_HOME"), error(nil)
	switch {
	case filepath.IsAbs(dir):
	case runtime.GOOS == "windows" || runtime.GOOS == "darwin":
		dir, err = os.UserConfigDir()
	default:
		dir, err = os.UserHomeDir()
		dir = filepath.Join(dir, ".local", "state")
	}
	if err != nil {
		return "", noDefaultError{err}
	}
	return filepath.Join(dir, "svc-ledger"), nil
}

// noDefaultError is returned if the environment does not tell the default folder of the ledger.
type noDefaultError struct{ error }

func (e noDefaultError) Error() string {
	return fmt.Sprintf("the default folder of the ledger is not known: set SVC_LEDGER or --ledger (%v)", e.error)
}

// openLedger opens the ledger for a command. It returns nil if the command goes without one.
func (t *tool) openLedger(ctx context.Context, c *command) (store ledger.Store, stop func(), err error) {
	stop = func() {}
	use := c.ledger
	if use == noLedger {
		return nil, stop, nil
	}
	if use == usesLedger && t.flags.key != "" {
		use = readsLedger
	}
	t.place, err = t.findLedger()
	switch {
	case err != nil && use == usesLedger && isA[noDefaultError](err):
		return nil, stop, nil
	case err != nil:
		return nil, stop, usageError{err}
	}
	if t.place.driver == "none" {
		if use == readsLedger {
			err = usageError{errLedgerNone}
		}
		return nil, stop, err
	}
	dry := c.dry != nil && *c.dry
	opening, cancel := t.openingTime(ctx, use)
	defer cancel()
	store, stop, err = t.openOrMake(opening, use == makesLedger && !t.place.explicit && !dry)
	switch {
	case dry && isA[noLedgerError](err) && !t.place.explicit:
		t.talk.say("there is no ledger at %s: without --dry-run, this command makes one", t.place.shown)
		return ledger.Memory(), func() {}, nil
	case err == nil:
		return watched{timely{store}, t, c}, stop, nil
	case use != usesLedger:
		return nil, func() {}, err
	case isA[noLedgerError](err) && !t.place.explicit:
		return nil, func() {}, nil
	}
	// Commands that lower the bill, such as "svc delete", still work with a broken ledger.
	return brokenLedger{err}, func() {}, nil
}

// openOrMake opens the ledger. If there is none and mayMake is set, it makes one, and says so.
func (t *tool) openOrMake(ctx context.Context, mayMake bool) (store ledger.Store, stop func(), err error) {
	store, stop, err = openPlace(ctx, t.place, ledger.MustExist())
	if mayMake && isA[noLedgerError](err) {
		var made bool
		if store, stop, made, err = makePlace(ctx, t.place); made {
			t.talk.warn("made a new ledger at %s: there was none. If there should be one, what it has may be running", t.place.shown)
		}
	}
	return store, stop, err
}

// makePlace makes a ledger, and reports whether it has: another process may make it at the same moment.
func makePlace(ctx context.Context, p place) (store ledger.Store, stop func(), made bool, err error) {
	store, stop, err = openPlace(ctx, p, ledger.MustNotExist())
	if errors.Is(err, fs.ErrExist) {
		store, stop, err = openPlace(ctx, p, ledger.MustExist())
		return store, stop, false, err
	}
	return store, stop, err == nil, err
}

// openPlace opens a ledger. If there is none, it creates one, or with [ledger.MustExist] returns a noLedgerError.
func openPlace(ctx context.Context, p place, opts ...ledger.Option) (store ledger.Store, stop func(), err error) {
	create := !slices.Contains(opts, ledger.MustExist())
	defer func() {
		switch {
		case errors.Is(err, fs.ErrNotExist) && !create && p.knows(err):
			err = noLedgerError{p}
		case err != nil:
			err = &ledger.Error{Op: "open " + p.shown, Err: err}
		}
	}()
	type opened struct {
		store ledger.Store
		stop  func()
	}
	o, err := answered(ctx, func(ctx context.Context) (opened, error) {
		store, stop, err := p.open(ctx, create, opts)
		return opened{store, stop}, err
	})
	return o.store, o.stop, err
}

// open opens a ledger.
func (p place) open(ctx context.Context, create bool, opts []ledger.Option) (store ledger.Store, stop func(), err error) {
	info, err := os.Stat(p.name)
	switch {
	case err != nil:
	case p.driver == "sqlite" && info.IsDir():
		return nil, nil, errors.New("it is a folder, and not the file of a database: without sqlite:, it names a ledger in a folder")
	case p.driver == "folder" && !info.IsDir():
		return nil, nil, fmt.Errorf("it is a file, and not a folder: sqlite:%s names a ledger in a database", p.name)
	}
	switch p.driver {
	case "postgres":
		return openSQL(p, "pgx", p.name, func(db *sql.DB) (ledger.Store, error) { return sqlledger.Postgres(ctx, db, opts...) })
	case "folder":
		store, err = ledger.Dir(p.name, opts...)
		return store, func() {}, err
	}
	if err != nil && !create { // to open a file that does not exist would make it
		return nil, nil, err
	}
	safe := "?_pragma=busy_timeout(10000)&_pragma=synchronous(FULL)"
	if !create { // a connection that is made later must not make the file anew
		safe += "&mode=rw"
	}
	file := (&url.URL{Scheme: "file", OmitHost: true, Path: p.name}).String()
	return openSQL(p, "sqlite", file+safe, func(db *sql.DB) (ledger.Store, error) { return sqlledger.SQLite(ctx, db, opts...) })
}

// knows reports whether an error about something that does not exist is about the ledger. A database server that does not run
// may have no socket: that is no answer of the server.
func (p place) knows(err error) bool {
	return p.driver != "postgres" || isA[*pgconn.PgError](err)
}

// isMalformed reports whether an error means that the file of a ledger is damaged, or is no database.
func isMalformed(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && slices.Contains([]int{sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}, e.Code()&0xff) // without what extends it
}

func openSQL(p place, driver, dsn string, open func(*sql.DB) (ledger.Store, error)) (ledger.Store, func(), error) {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return nil, nil, fmt.Errorf("%s cannot be opened", cmp.Or(p.shown, driver)) // the error may hold the password
	}
	store, err := open(db)
	if err != nil {
		_ = db.Close()
		if refused, ok := errors.AsType[*pgconn.ParseConfigError](err); ok { // its text has all parameters, and one may be a password
			text := refused.Error()
			err = errors.New("its connection string cannot be used" + text[strings.LastIndex(text, "`")+1:])
		}
		return nil, nil, err
	}
	return store, func() { _ = db.Close() }, nil
}

// watched is the ledger of a command. It notes what the command finds out and records.
type watched struct {
	timely
	tool    *tool
	command *command
}

// List lists records, as the command has to see them.
func (w watched) List(ctx context.Context, key string) ([]ledger.Record, error) {
	records, err := w.timely.List(ctx, key)
	w.tool.noteOwners(records)
	w.tool.noteDamaged(err)
	if w.command.listed != nil {
		records = w.command.listed(records)
	}
	return records, err
}

// Append implements [ledger.Store].
func (w watched) Append(ctx context.Context, r ledger.Record) error {
	if r.Event == ledger.Intended { // before, since it may be stored in spite of an error
		w.tool.noteIntent(r)
	}
	err := w.timely.Append(ctx, r)
	switch {
	case r.Event == ledger.Deleted:
		w.tool.noteEndpoint(r.ServiceID, func(e *endpoint) { e.proved = time.Now() })
	case r.Event == ledger.Created && err == nil:
		w.tool.noteEndpoint(r.ServiceID, func(e *endpoint) { e.key = r.Key })
	}
	if err == nil && w.command.onRecord != nil {
		w.command.onRecord(r)
	}
	return err
}

// writable returns an error if the ledger cannot be written. A deployment checks that before it deletes an endpoint, or
// finds out whether one is deleted: it could not record that.
func (t *tool) writable(ctx context.Context) error {
	if t.place.driver == "none" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := t.place.tryWrite(ctx); err != nil {
		return &ledger.Error{Op: "write to " + t.place.shown, Err: err}
	}
	return nil
}

// briefly returns a context for a look into the ledger at the end of a command: it lasts two seconds, also
// after the end of ctx.
func briefly(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
}

// brokenLedger is a ledger that could not be opened: each use returns err.
type brokenLedger struct{ err error }

func (l brokenLedger) Append(context.Context, ledger.Record) error { return l.err }

func (l brokenLedger) List(context.Context, string) ([]ledger.Record, error) { return nil, l.err }

// noEntryError is returned when a key has no open entry in the ledger, by each command that takes a key. If id is not empty,
// the key has one, but none of the endpoint with that ID.
type noEntryError struct{ key, look, id string }

// mixedUpError is returned for an ID in place of a key, or a key in place of an ID. It matches
// [svc.ErrNotFound].
type mixedUpError struct{ text string }

func (e mixedUpError) Error() string { return e.text }

func (mixedUpError) Is(target error) bool { return target == svc.ErrNotFound }

func (e noEntryError) Error() string {
	if e.id != "" {
		return fmt.Sprintf("no open entry of the key %q has the ID %q. To see them: %s", e.key, e.id, e.look)
	}
	return fmt.Sprintf("the key %q has no open entry in the ledger. To see which keys have one: %s", e.key, e.look)
}

// Is makes the error match [svc.ErrNotFound].
func (noEntryError) Is(target error) bool { return target == svc.ErrNotFound }

// openEntry returns the open entry of a key, or nil if there is none. If there are several, because a
// forgotten entry was adopted later, it records them for the advice.
func (t *tool) openEntry(ctx context.Context, key string) (*ledger.Entry, error) {
	e, err := t.client.Ledger.Entry(ctx, key)
	if errors.Is(err, svc.ErrKeyInUse) {
		var several []string
		for _, e := range t.openUnder(ctx, key) {
			several = append(several, cmp.Or(printable(e.ServiceID), "an entry without an ID ("+string(e.State)+")"))
		}
		t.note(func(f *facts) { f.Several = several })
	}
	return e, err
}

// openUnder returns the open entries of a key, as far as the ledger can be read.
func (t *tool) openUnder(ctx context.Context, key string) []ledger.Entry {
	entries, _ := t.client.Ledger.Entries(ctx)
	return openUnder(entries, key)
}

// openUnder returns the open entries of a key.
func openUnder(entries []ledger.Entry, key string) []ledger.Entry {
	return slices.DeleteFunc(slices.Clone(entries), func(e ledger.Entry) bool { return e.Key != key || !e.Open() })
}

// entryOf returns the open entry of a key. An entry of another address is an error: its ID may belong
// to another endpoint here.
func (t *tool) entryOf(ctx context.Context, key string) (ledger.Entry, error) {
	e, err := t.openEntry(ctx, key)
	switch {
	case err != nil:
		return ledger.Entry{}, err
	case e == nil:
		entries, _ := t.client.Ledger.Entries(ctx)
		return ledger.Entry{}, t.noEntry(entries, key)
	}
	if err := t.isHere(*e); err != nil {
		return ledger.Entry{}, err
	}
	return *e, nil
}

// elsewhereError is returned for an entry of another address.
type elsewhereError struct{ entry ledger.Entry }

func (e elsewhereError) Error() string {
	which := "its entry, which has no ID,"
	if e.entry.ServiceID != "" {
		which = "the endpoint " + printable(e.entry.ServiceID)
	}
	return fmt.Sprintf("%s is at another address: repeat the command with --base-url %s", which, shellWord(e.entry.BaseURL))
}

// isHere returns an error for an entry of another address.
func (t *tool) isHere(e ledger.Entry) error {
	if !t.elsewhere(e) {
		return nil
	}
	return &ledger.Error{Op: "read", Key: e.Key, Intent: e.Intent, Err: elsewhereError{e}}
}
