package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"example.com/svc"
)

const runHelp = `Deploys an endpoint, runs CMD with the environment variables SVC_SERVICE_ID, SVC_SERVICE_URL and
SVC_API_TOKEN, and deletes the endpoint on every way out. Ends with the exit code of CMD, or with
10 if the deletion is not proved.

Standard input, output and error belong to CMD; what this program says goes to standard error.
--timeout limits the deployment; CMD has no time limit. A signal is passed to CMD. If CMD does not
end within 10 s, it is killed. Then the endpoint is deleted, and the exit code is 128 plus the
number of the signal. A second signal, more than 2 s later, ends this program at once.`

const (
	cmdLimit     = 10 * time.Second // how long CMD may take to end after a signal
	cleanupLimit = 2 * time.Minute  // how long the deletion may take
)

func (t *tool) runCommand() *command {
	var s spec
	c := &command{
		Command: &cobra.Command{
			Use: "run [flags] -- CMD [ARG...]", Short: "deploy an endpoint, run a program with it, and delete it",
			Long:    runHelp,
			Example: "  svc run --name test --image registry.example/app:1 -- ./test.sh",
			Args: func(cmd *cobra.Command, args []string) error {
				if len(args) == 0 {
					return errors.New("no CMD: write it after --")
				}
				if cmd.Flags().Changed("output") {
					return errors.New("-o has no meaning here: standard output belongs to CMD")
				}
				return nil
			},
		},
		client: needsClient, ledger: makesLedger, stake: changes, endless: true, empty: emptyMessage,
		left: func(f facts) []string { return []string{mayRun(f.ID)} },
	}
	c.onRecord = t.noteIntent
	s.add(c.Flags())
	c.Flags().SetInterspersed(false)
	c.run = func(ctx context.Context, args []string) (view, error) {
		cmd := exec.CommandContext(context.WithoutCancel(ctx), args[0], args[1:]...) // stopProgram ends it
		if _, err := exec.LookPath(args[0]); err != nil {                            // before anything is created
			t.note(func(f *facts) { f.Running = false })
			return nil, &exec.Error{Name: args[0], Err: err}
		}
		d, err := t.deployment(ctx, &s)
		if err != nil {
			return nil, err
		}
		d.announce = func(context.Context, string) error { return nil }
		return nil, t.deployAndRun(ctx, d, cmd)
	}
	return c
}

// deployAndRun deploys the endpoint, runs cmd and deletes the endpoint.
func (t *tool) deployAndRun(ctx context.Context, d *deployment, cmd *exec.Cmd) error {
	limited, cancel := context.WithTimeout(ctx, t.flags.timeout)
	defer cancel()
	service, err := d.run(limited)
	if err != nil {
		return err
	}
	code, err := t.runProgram(ctx, cmd, service)
	if failed := t.remove(ctx, service.ServiceID); failed != nil {
		return failed
	}
	t.note(func(f *facts) { f.Running, f.Deleted = false, true })
	if i, ok := errors.AsType[interruption](context.Cause(ctx)); ok {
		number, _ := i.signal.(syscall.Signal)
		return coded{fmt.Errorf("%w; %s is deleted", i, service.ServiceID), 128 + int(number)}
	}
	if err != nil {
		return coded{err, exitFailed}
	}
	if code != 0 {
		return coded{nil, code}
	}
	return nil
}

// runProgram runs cmd and returns its exit code.
func (t *tool) runProgram(ctx context.Context, cmd *exec.Cmd, service *svc.InferenceService) (int, error) {
	url, _ := t.client.InferenceServices.URL(service.ServiceID)
	token, err := readToken(t.flags.tokenFile)(ctx)
	if err != nil {
		return 0, err
	}
	cmd.Env = append(os.Environ(), "SVC_SERVICE_ID="+service.ServiceID, "SVC_SERVICE_URL="+url, "SVC_API_TOKEN="+token)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	t.talk.flush(2 * time.Second)
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err = <-done:
	case <-ctx.Done():
		err = t.stopProgram(ctx, cmd, done)
	}
	return endOf(cmd, err)
}

// stopProgram passes the signal on, and kills cmd if it does not end.
func (t *tool) stopProgram(ctx context.Context, cmd *exec.Cmd, done <-chan error) error {
	i, ok := errors.AsType[interruption](context.Cause(ctx))
	fromTerminal := i.signal == os.Interrupt && term.IsTerminal(int(os.Stdin.Fd())) // the terminal has sent it to CMD as well
	if ok && !fromTerminal {
		_ = cmd.Process.Signal(i.signal)
	}
	select {
	case err := <-done:
		return err
	case <-time.After(cmdLimit):
		t.talk.say("%s has not ended within %v: killing it", cmd.Path, cmdLimit)
	case <-t.giveUp:
	}
	_ = cmd.Process.Kill()
	return <-done
}

// endOf returns the exit code of a program that has ended. After a signal it is 128 plus the
// number of the signal, as in a shell.
func endOf(cmd *exec.Cmd, err error) (int, error) {
	if err != nil && !isA[*exec.ExitError](err) {
		return 0, err
	}
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return cmd.ProcessState.ExitCode(), nil
}

// remove deletes the endpoint, also when ctx has ended.
func (t *tool) remove(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupLimit)
	defer cancel()
	t.talk.setDeleting(true)
	t.talk.say("deleting %s", printable(id))
	err := t.deleteAndWait(ctx, id)
	if err != nil {
		return fmt.Errorf("%s is not known to be deleted: %s", id, strings.TrimPrefix(plainText(err), id+": "))
	}
	return nil
}
