package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"example.com/svc"
	"example.com/svc/ledger"
	"github.com/spf13/cobra"
)

const runHelp = `Deploys an endpoint, runs CMD with the environment variables SVC_SERVICE_ID, SVC_SERVICE_URL and
SVC_API_TOKEN, and deletes the endpoint on every way out. Ends with the exit code of CMD, or with
10 if the deletion is not proved.

CMD may end with any code, also with one that this program has: --result FILE tells them apart. FILE
is written at the end, all at once, and only its user can read it. It is a JSON document: the exit
code of this program alone (svc_exit_code: 0 if the endpoint was deployed and deleted, whatever CMD
did, also if a signal has ended it), that of CMD (command_exit_code) or the number of the signal that
killed it (command_signal), whether CMD may have lost the endpoint because its lease was over
(lease_over), and may_be_running. An older result is removed first: if there is none afterwards, this program was
killed, and "svc ls" shows what may be running. A FILE that is not empty, and no result, is refused.

Standard input, output and error belong to CMD; what this program says goes to standard error.
An executable text whose first line does not begin with #! is run by sh, as a shell does.
If another command has deleted the endpoint before CMD is started, or has begun to, CMD is not started,
and the exit code is 11 once it is deleted. If that happens while CMD runs, a warning says so at the end.

--timeout limits the deployment; CMD has no time limit. A signal is passed to CMD and to the
programs that it has started. If one of them does not end within 10 s, it is killed. Then the
endpoint is deleted, and the exit code is 128 plus the number of the signal. During the deployment,
CMD is not started, and the exit code is 11 once the endpoint is deleted, or 130 if none was created.
A second signal, more than 2 s later, and SIGQUIT (Ctrl-\) at any time, end this program at once: CMD
is killed, no delete is sent any more, and the last line says what to run.

On a terminal, CMD shares it with this program, so that it can read what you type, and Ctrl-Z stops
both. There Ctrl-C reaches CMD and what it has started, but any other signal reaches CMD alone.
What CMD leaves running when it ends by itself goes on. So does what has left CMD's process group
(setsid, a daemon): no signal of this program reaches it, and it is not killed.

If this program itself is killed (SIGKILL), the endpoint goes on running. With --lease, "svc sweep"
deletes it once its lease is over. Without --lease, which is the default, nothing deletes it until
somebody runs "svc delete ID" ("svc ls" shows the ID). When this program is killed, Linux kills CMD too,
but not what CMD has started; on other systems CMD goes on.

A deletion may take two minutes. A program that kills this one after a signal, such as "timeout -k 180",
must give it three.`

const (
	cmdLimit     = 10 * time.Second // how long CMD may take to end after a signal
	killLimit    = 3 * time.Second  // how long it may take to kill CMD, and to read the ledger after that
	cleanupLimit = 2 * time.Minute  // how long the deletion may take
)

// runView is the view of run, in the file of --result.
type runView struct {
	outcome
	SvcExitCode     int  `json:"svc_exit_code"`                           // exit code of svc alone; 0 if the endpoint was deployed and deleted, whatever CMD did, also if a signal has ended it
	CommandExitCode *int `json:"command_exit_code" jsonschema:"nullable"` // exit code of CMD; null if it did not run, a signal killed it, or it still runs
	CommandSignal   *int `json:"command_signal" jsonschema:"nullable"`    // number of the signal that killed CMD; null if none did
	LeaseOver       bool `json:"lease_over"`                              // the lease has ended while CMD ran, so that CMD may have lost the endpoint
}

func emptyRun() view { return &runView{} }

func (*runView) table() table    { return table{} }
func (*runView) names() []string { return nil }

func (t *tool) runCommand() *command {
	var s spec
	c := &command{
		Command: &cobra.Command{
			Use: "run [flags] -- CMD [ARG...]", Short: "deploy an endpoint, run a program with it, and delete it",
			Long:    runHelp,
			Example: "  svc run --name test --image registry.example/app:1 --lease 2h -- ./test.sh",
			Args: func(_ *cobra.Command, args []string) error {
				if len(args) == 0 {
					return errors.New("no CMD: write it after --")
				}
				return nil
			},
			PreRunE: func(*cobra.Command, []string) error { return t.result.prepare() },
		},
		client: needsClient, ledger: makesLedger, stake: changes, limitsItself: true, empty: emptyRun,
		left:    t.stillRuns,
		refuses: map[string]string{"output": "standard output belongs to CMD"},
	}
	s.add(c.Flags())
	c.Flags().StringVar(&t.result.name, "result", "", "file for the result as JSON: the exit codes of svc and of CMD, and what may be running")
	c.Flags().SetInterspersed(false)
	c.run = func(ctx context.Context, args []string) (view, error) {
		cmd := exec.CommandContext(context.WithoutCancel(ctx), args[0], args[1:]...) // stopProgram ends it
		_, err := exec.LookPath(args[0])                                             // before anything is created
		if err = cmp.Or(err, interpret(cmd)); err != nil {
			t.note(func(f *facts) { f.Running = false })
			return nil, err
		}
		limited, cancel := context.WithTimeout(ctx, t.flags.timeout) // for the deployment: CMD has no time limit
		defer cancel()
		d, err := t.deployment(limited, &s)
		if err != nil {
			return nil, err
		}
		d.announce = func(context.Context, string) error { return nil }
		service, err := d.run(limited)
		if err != nil && d.lost == nil {
			return nil, err
		}
		return nil, t.runAndDelete(ctx, d, service, cmd)
	}
	return c
}

// runAndDelete runs cmd and deletes the endpoint.
func (t *tool) runAndDelete(ctx context.Context, d *deployment, service *svc.InferenceService, cmd *exec.Cmd) (err error) {
	entry := t.entryNow(ctx) // now, so that the delete does not wait for the ledger
	code := 0
	if d.lost != nil {
		err = lostError{d.lost, service.ServiceID}
	} else {
		code, err = t.runProgram(ctx, cmd, service)
	}
	if t.givesUp() {
		return t.givenUp()
	}
	if entry.State != ledger.Deleted {
		if failed := t.remove(ctx, service.ServiceID, entry); failed != nil {
			return failed
		}
	}
	started := !isA[lostError](err) && !isA[notStartedError](err)
	t.note(func(f *facts) { f.Running, f.Deleted, f.GivenBack = false, true, started })
	if i, ok := errors.AsType[interruption](context.Cause(ctx)); ok && started {
		number, _ := i.signal.(syscall.Signal)
		return coded{fmt.Errorf("%w; %s is deleted", i, service.ServiceID), 128 + int(number)}
	}
	if err != nil && started {
		err = coded{err, exitFailed}
	}
	if err != nil {
		return err
	}
	if code != 0 {
		return exitOfCMD(code)
	}
	return nil
}

// lostError is returned if CMD was not started, since another command has deleted the endpoint, or is deleting it.
type lostError struct {
	error
	id string
}

func (e lostError) Error() string {
	return "another command has deleted " + printable(e.id) + ", or has begun to, so CMD was not started"
}

func (e lostError) Unwrap() error { return e.error }

// notStartedError is returned if CMD was not started after the deployment.
type notStartedError struct{ error }

func (e notStartedError) Unwrap() error { return e.error }

// notYet returns a notStartedError for what came between the deployment and the start of CMD, such as a signal.
func notYet(why error) error { return notStartedError{fmt.Errorf("%w before CMD was started", why)} }

// errStart is returned for a CMD that the system does not start.
var errStart = errors.New("CMD cannot be started")

// runProgram runs cmd and returns its exit code.
func (t *tool) runProgram(ctx context.Context, cmd *exec.Cmd, service *svc.InferenceService) (int, error) {
	url, _ := t.client.InferenceServices.URL(service.ServiceID)
	reading, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	token, err := readToken(t.flags.tokenFile)(reading)
	if err != nil {
		return 0, notYet(err)
	}
	cmd.Env = append(os.Environ(), "SVC_SERVICE_ID="+service.ServiceID, "SVC_SERVICE_URL="+url, "SVC_API_TOKEN="+token)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	p := newProgram(cmd)
	t.talk.flush(2 * time.Second)
	if ctx.Err() != nil {
		return 0, notYet(context.Cause(ctx))
	}
	if !t.mayStart() {
		return 0, t.givenUp()
	}
	defer func() { close(t.over) }()
	done, err := start(cmd)
	if err != nil {
		return 0, notStartedError{fmt.Errorf("%w: %w", errStart, err)}
	}
	early := ctx.Err() != nil // a terminal may have sent Ctrl-C before CMD existed
	select {
	case err = <-done:
	case <-ctx.Done():
		err = t.stopProgram(ctx, p, done, early)
	case <-t.giveUp:
		err = t.stopProgram(ctx, p, done, early)
	}
	code, err := t.endOf(cmd, err)
	t.warnOfLoss(ctx)
	return code, err
}

// mayStart reports whether CMD may be started. From then on, a program that is given up waits for its end.
func (t *tool) mayStart() (may bool) {
	t.note(func(*facts) {
		if may = !t.givesUp(); may {
			t.over = make(chan struct{})
		}
	})
	return may
}

// awaitProgram waits until CMD has ended, if it was started, so that the result has its end. runProgram kills it, since the
// program is given up.
func (t *tool) awaitProgram() {
	t.mu.Lock()
	over := t.over
	t.mu.Unlock()
	if over == nil {
		return
	}
	select {
	case <-over:
	case <-time.After(killLimit):
	}
}

// start starts cmd, and sends to done when it has ended. It keeps the thread that has started cmd: see dieWith.
func start(cmd *exec.Cmd) (done <-chan error, err error) {
	started, ended := make(chan error), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	return ended, <-started
}

// stopProgram forwards the signal, and kills the program if it does not end in time. early reports whether the signal came
// before the program was started.
func (t *tool) stopProgram(ctx context.Context, p *program, done <-chan error, early bool) error {
	if i, ok := errors.AsType[interruption](context.Cause(ctx)); ok && (early || !p.hasIt(i.signal)) {
		p.send(i.signal)
	}
	limit, check := time.After(cmdLimit), time.NewTicker(50*time.Millisecond)
	defer check.Stop()
	var err error
	for ended := false; !ended || p.others(); {
		select {
		case err = <-done:
			ended = true
			continue
		case <-check.C:
			continue
		case <-limit:
			t.talk.say("%s has not ended within %v: killing it", p.cmd.Path, cmdLimit)
		case <-t.giveUp:
		}
		if p.kill(); !ended {
			err = <-done
		}
		break
	}
	return err
}

// endOf returns the exit code of a program that has ended. After a signal it is 128 plus the
// number of the signal, as in a shell.
func (t *tool) endOf(cmd *exec.Cmd, err error) (int, error) {
	if err != nil && !isA[*exec.ExitError](err) {
		return 0, err
	}
	code := cmd.ProcessState.ExitCode()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		number := int(status.Signal())
		t.result.ended(nil, &number)
		return 128 + number, nil
	}
	t.result.ended(&code, nil)
	return code, nil
}

// remove deletes the endpoint, even when ctx has ended. e is its entry; zero if not known.
func (t *tool) remove(ctx context.Context, id string, e ledger.Entry) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupLimit)
	defer cancel()
	t.talk.setDeleting(true)
	t.talk.say("deleting %s", printable(id))
	err := t.deleteAndWait(ctx, id, e)
	if err != nil {
		return several{fmt.Sprintf("%s is not known to be deleted: %s", id, strings.TrimPrefix(plainText(err), id+": ")), []error{err}}
	}
	return nil
}
