package main

import (
	"context"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"example.com/svc"
	"example.com/svc/ledger"
)

// tool is one run of the program.
type tool struct {
	stdin  io.Reader
	stdout *output
	stderr *os.File
	talk   *talk
	ctx    context.Context // ends at the first signal
	giveUp <-chan struct{} // is closed at a second signal: the program ends at once

	flags   globals
	root    *cobra.Command
	all     []*command
	client  *svc.Client     // nil if the command does not need one
	journal *ledger.Journal // the ledger of the client, for what only this program records; nil if there is none
	store   ledger.Store    // the ledger itself; nil if there is none
	address string          // base URL of the service
	place   place           // where the ledger is
	wait    svc.WaitOptions
	result  result // of "svc run"

	sweeping map[string]time.Time // ends of the leases, by intent, as they were when the sweep began; nil for other commands

	published atomic.Bool               // the document is written
	deletedAt atomic.Pointer[time.Time] // Date of the latest response to a delete; zero before it
	ahead     atomic.Int64              // how far the clock of this machine is ahead of the service's, in ns, by the latest response; see off

	mu          sync.Mutex
	current     *command // the command that runs; nil if the command line is not valid
	known       facts
	shown       view                 // what the command has found
	partial     func() view          // returns what it has found so far, and is called under the lock; nil if it has no such function
	over        chan struct{}        // is closed when CMD of "svc run" has ended, and what is known of its end is recorded; nil if it is not started
	endpoints   map[string]*endpoint // by their IDs in lower case
	told        map[string]bool      // what is said only once
	damagedKeys []string             // the keys whose records were seen to be damaged
}

// facts is what is known about the endpoints of a command.
type facts struct {
	ID         string   // the endpoint; empty if not known, or several
	Key        string   // its key in the ledger; empty if not given
	Name       string   // its name; empty if not known
	Flavor     string   // its flavor, by the ledger or as requested; empty if not known
	Instances  int      // its instances, by the ledger or as requested; 0 if not known
	Intent     string   // the intent of a create in doubt, or of the create that was sent; empty if not known
	Entry      string   // the key of the entry of Intent, which is random without --key; empty if not known
	Created    bool     // this command created the endpoint
	Resumed    bool     // an earlier command created the endpoint, under the same key
	Deleted    bool     // the endpoint is known to be deleted
	Running    bool     // false only if it is known that no endpoint of the command is running
	Target     int      // number of instances that were asked for
	Several    []string // what is open under the key, if that is more than one entry
	Posted     bool     // a create was sent
	Pending    bool     // a create may be under way: its outcome is not known yet
	Hidden     []string // the IDs, each with its key, that were not found, and that the ledger has as created with another token
	NoPath     bool     // the latest probe was refused, as if the path of --probe were wrong
	Unrecorded bool     // the ledger could not record the ID of the endpoint: the entry has none
	Changed    bool     // a change of the number of instances may have taken effect
	Changing   bool     // such a change was sent, and has no response yet
	Uploading  string   // name of the file record that a request may have made; empty if there is none, or its ID is known
	UploadTo   string   // ID of the file record to which contents are sent; empty if none are
	Unread     bool     // it is said that the ledger cannot be read, so that the entry of a deleted endpoint may stay open
	Listed     bool     // the ledger has an open entry with its ID
	Unwritten  bool     // the work is done, and standard output could not be written
	GivenBack  bool     // the endpoint of "svc run" was deployed, and is deleted
	Left       bool     // an endpoint that was to be deleted is not known to be deleted
	Deleting   bool     // the command waits until the endpoint of the key is deleted
	LeaseOver  bool     // the lease of the endpoint of "svc run" has ended while CMD ran
	Replaced   string   // ID of the endpoint of the key that --replace has deleted; empty if there is none
	Overtaken  bool     // another command has set the number of instances, to Target

	Doubt      *unknownCreate                     // the create in doubt that a failure is about; nil if it is about none, or several
	DeleteFrom time.Time                          // by the ledger, the service has accepted a delete of the endpoint then; zero if it has not
	SettleBy   time.Time                          // a create in doubt can be forgotten from then on; zero if not known
	Request    *svc.CreateInferenceServiceRequest // of a deployment; nil if it is none
	Seen       *svc.InferenceService              // its record that was read last; nil if none was
}

func newTool(stdin io.Reader, stdout, stderr *os.File, s signals) *tool {
	t := &tool{stdin: stdin, stdout: &output{file: stdout}, stderr: stderr, talk: newTalk(stderr), ctx: s.ctx, giveUp: s.giveUp, endpoints: map[string]*endpoint{}, told: map[string]bool{}}
	t.deletedAt.Store(new(time.Time))
	t.root = t.rootCommand()
	return t
}

// note changes the facts under the lock, since an interrupted run reads them from another
// goroutine.
func (t *tool) note(change func(*facts)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(&t.known)
}

// facts returns a copy of the facts.
func (t *tool) facts() facts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known
}

// first reports whether it is called for the first time with a text.
func (t *tool) first(text string) (is bool) {
	t.note(func(*facts) { is, t.told[text] = !t.told[text], true })
	return is
}

// main runs the program and returns its exit code. After a second signal it does not wait for
// the command to end.
func (t *tool) main(args []string) int {
	done, running := make(chan error, 1), t
	go func() { done <- running.execute(args) }()
	var err error
	select {
	case err = <-done:
	case <-t.giveUp:
		select {
		case err = <-done: // the command ended at the same moment
		default:
			defer litter.clear()
			if !t.begun() { // its commands and flags belong to the other goroutine, which reads the command line
				t = newTool(t.stdin, t.stdout.file, t.stderr, signals{t.ctx, t.giveUp})
			}
			err = t.givenUp()
			t.awaitProgram()
			t.tellMarked(t.ctx, t.endpointsThat(func(e endpoint) bool { return e.marked })...)
			if t.endCreate() {
				err = t.givenUp()
			}
		}
	}
	code := t.report(err, args)
	t.talk.flush(2 * time.Second)
	return code
}

// begun reports whether the command line is read.
func (t *tool) begun() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.current != nil
}

// givesUp reports whether the program ends without waiting for its command.
func (t *tool) givesUp() bool {
	select {
	case <-t.giveUp:
		return true
	default:
		return false
	}
}

// polled is the function for [svc.WaitOptions.OnPoll].
func (t *tool) polled(p svc.Poll) {
	t.saw(p.Service)
	t.talk.poll(p)
}

// saw records the latest record of the endpoint. s may be nil.
func (t *tool) saw(s *svc.InferenceService) {
	if s != nil && s.Name != "" { // the response to a create may have been cut off
		t.note(func(f *facts) { f.Seen = s })
	}
}

// execute parses the command line and runs the command.
func (t *tool) execute(args []string) error {
	t.root.SetArgs(args)
	err := t.root.ExecuteContext(t.ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil || t.current != nil || isA[unwritable](err) {
		return err
	}
	// A command that does not exist is a better reason than its flags, which cannot be known.
	if c, rest, _ := t.root.Find(args); c.HasSubCommands() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return onlyCommands(c, rest)
	}
	c, _, _ := t.root.Find(args)
	return usageError{plainly(err, c)}
}

// perform runs a command whose command line is valid.
func (t *tool) perform(ctx context.Context, c *command, args []string) error {
	t.flags.key = ""
	if f := c.Flags().Lookup("key"); f != nil {
		t.flags.key = f.Value.String()
	}
	t.talk.set(&t.flags)
	t.note(func(f *facts) { *f = facts{Key: t.flags.key, Running: c.atStake(t.flags.key != "")} })
	if c.before != nil {
		c.before(args)
	}
	t.mu.Lock()
	t.current = c // with what the command line says: from now on the program may be stopped at any moment
	t.mu.Unlock()
	limited := ctx
	if !c.endless || c.Flags().Changed("timeout") {
		l, cancel := context.WithTimeout(ctx, t.flags.timeout)
		defer cancel()
		limited = l
	}
	stop, err := t.connect(limited, c)
	if err != nil {
		return err
	}
	defer stop()
	if !c.limitsItself {
		ctx = limited
	}
	t.wait.OnPoll = t.polled
	defer t.talk.endLine()
	v, err := c.run(ctx, args)
	if dry := c.dry != nil && *c.dry; err == nil && !dry {
		err = t.lookAgain(ctx, c.success)
	}
	t.noteKnown(ctx, err)
	t.noteHidden(ctx, err)
	err = t.whyDeleted(ctx, err)
	t.mu.Lock()
	t.shown = v
	t.mu.Unlock()
	return err
}
