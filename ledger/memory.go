package ledger

import (
	"context"
	"io/fs"
	"maps"
	"slices"
	"sync"
)

// Memory returns an empty store for tests. Its records are lost when the process ends.
func Memory() Store { return &memory{records: make(map[string][]Record)} }

type memory struct {
	mu      sync.Mutex
	records map[string][]Record // maps a key to its records, in order of Seq
}

func (m *memory) Append(ctx context.Context, r Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, found := slices.BinarySearchFunc(m.records[r.Key], r.Seq, func(s Record, seq int64) int { return int(s.Seq - seq) })
	switch {
	case !ValidKey(r.Key), r.Seq < 1:
		return errRecord
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case found:
		return fs.ErrExist
	}
	m.records[r.Key] = slices.Insert(m.records[r.Key], at, r)
	return nil
}

func (m *memory) List(ctx context.Context, key string) (all []Record, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if key != "" {
		return slices.Clone(m.records[key]), nil
	}
	for _, key := range slices.Sorted(maps.Keys(m.records)) {
		all = append(all, m.records[key]...)
	}
	return all, nil
}

func (m *memory) Prune(_ context.Context, key string, upTo int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records[key] = slices.DeleteFunc(slices.Clone(m.records[key]), func(r Record) bool { return r.Seq <= upTo })
	return nil
}
