package main

import (
	"fmt"
	"slices"

	"example.com/svc"
	"example.com/svc/ledger"
)

// mayRun reports whether instances of an endpoint may be running and billed. It returns false only
// if the record shows that none is: the endpoint is deleted, or it is stopped and has 0 instances.
func mayRun(s *svc.InferenceService) bool {
	parked := s.Status == svc.InferenceServiceStatusStopped && s.ResourceMetadata.TargetInstanceNumber == 0
	return !s.IsDeleted && !parked
}

// anyOpen reports whether an endpoint of the entries may be running and billed. This includes an open
// entry with 0 instances, since the ledger does not record changes that were made without it.
func anyOpen(entries []ledger.Entry, err error) bool {
	return err != nil || slices.ContainsFunc(entries, ledger.Entry.Open)
}

// restart returns how to start an endpoint that has 0 instances, or nil if the endpoint cannot be used
// for another reason.
func (t *tool) restart(f facts) (lines []string) {
	if f.Running {
		return nil
	}
	lines = []string{fmt.Sprintf("%s has 0 instances: nothing of it is running or billed. To start it: %s", capital(f.subject()), t.cmdOn(f, "scale", max(f.Target, 1)))}
	if f.Resumed {
		lines = append(lines, "To delete it and create a new one: the same command with --replace.")
	}
	return lines
}
