package ledger

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"strconv"
	"strings"
	"time"

	"example.com/svc/internal/cause"
	"example.com/svc/internal/lazy"
	"example.com/svc/internal/poll"
)

// A Request is the parsed body of a create or update.
type Request struct {
	Name      string // name of the endpoint
	FlavorID  string // flavor of the endpoint
	Instances int    // number of instances; -1 if the body has none

	fields map[string]any // the whole body, with numbers as text
}

var errBody = errors.New("must hold a name, a flavor_id and a target_instance_number of the usual types, since the ledger records them")

// ParseRequest reads the final body of a create or of an update.
func ParseRequest(body []byte) (r Request, err error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var sent struct {
		Name             string
		ResourceMetadata struct {
			FlavorID             string `json:"flavor_id"`
			TargetInstanceNumber any    `json:"target_instance_number"`
		} `json:"resource_metadata"`
	}
	if dec.Decode(&r.fields) != nil || json.Unmarshal(body, &sent) != nil {
		return r, errBody
	}
	r.Name, r.FlavorID, r.Instances = sent.Name, sent.ResourceMetadata.FlavorID, -1
	if n := sent.ResourceMetadata.TargetInstanceNumber; n != nil {
		f, err := strconv.ParseFloat(fmt.Sprint(n), 64)
		if err != nil || f != math.Trunc(f) || math.Abs(f) > math.MaxInt32 {
			return r, errBody
		}
		r.Instances = int(f)
	}
	return r, nil
}

const hashVersion = "1:"

// Intend returns the record of the intent to create an endpoint with this request, without its times,
// and the body to send. final is the body with the chosen flavor, which the hash of the request does
// not include. If mark is true, the description begins with the mark of the intent, so that a service
// that truncates descriptions keeps it. Marks of other intents are removed. A create without a number
// of instances creates one instance.
func (r Request) Intend(key, baseURL string, final []byte, mark bool) (Record, []byte, error) {
	intent := rand.Text()
	sent, err := ParseRequest(final)
	record := Record{
		Key: key, Intent: intent, Event: Intended, BaseURL: baseURL, Name: sent.Name, FlavorID: sent.FlavorID,
		Instances: sent.billed(), RequestHash: r.hash(intent, r.FlavorID),
	}
	if err != nil || !mark {
		return record, final, err
	}
	description, ok := sent.fields["description"].(string)
	if !ok && sent.fields["description"] != nil {
		return record, nil, errors.New("must be a string: the ledger adds its mark to it (see WithoutLedgerMark)")
	}
	_, description = FindMark(description)
	sent.fields["description"] = strings.TrimSpace("[svc:" + intent + "] " + description)
	marked, err := json.Marshal(sent.fields)
	return record, marked, err
}

// billed returns the number of instances that a create starts.
func (r Request) billed() int {
	if r.Instances < 0 {
		return 1
	}
	return r.Instances
}

// hash returns a hash of the intent and the body with this flavor, with sorted keys and without the
// mark. An empty flavor is not in the body. The result begins with the version of the hash.
func (r Request) hash(intent, flavor string) string {
	fields := maps.Clone(r.fields)
	if sent, _ := fields["resource_metadata"].(map[string]any); flavor != r.FlavorID {
		meta := map[string]any{}
		maps.Copy(meta, sent)
		if fields["resource_metadata"], meta["flavor_id"] = meta, flavor; flavor == "" {
			delete(meta, "flavor_id")
		}
	}
	if text, ok := fields["description"].(string); ok {
		_, fields["description"] = FindMark(text)
	}
	sorted, _ := json.Marshal(fields)
	sum := sha256.Sum256(append([]byte(intent+"\n"), sorted...))
	return hashVersion + hex.EncodeToString(sum[:])
}

// MarkLength is the number of characters that the mark of an intent adds to a description.
const MarkLength = len("[svc:] ") + 26

var marks = lazy.Regexp(`\[svc:([A-Z2-7]{26})\]`)

// FindMark returns the intent in the first mark "[svc:INTENT]" of a description, and the
// description without its marks. The intent is empty if there is no mark.
func FindMark(description string) (intent, without string) {
	if m := marks().FindStringSubmatch(description); m != nil {
		intent = m[1]
	}
	return intent, strings.TrimSpace(marks().ReplaceAllLiteralString(description, ""))
}

// ErrKeyInUse is returned when a key has an endpoint of another request, or two open entries.
var ErrKeyInUse = errors.New("svc: the key is in use")

// Await returns the verdict of judge for a create. It first writes the records of the key that
// [Journal.Settle] could not write. If another create under the key is under way,
// Await calls begins once, which returns the service's clock, and reads the ledger until the other
// create has an outcome. The verdict is never Wait, unless the ledger cannot be read. If it is
// Free, last is the highest Seq of the key. If it is Resume, the entry has the lease now, unless
// its own ends later. If it is InDoubt or InUse, the error is the reason.
func (j *Journal) Await(ctx context.Context, key string, lease time.Duration, want Request, begins func(context.Context, Entry) func() time.Time) (v Verdict, e Entry, last int64, err error) {
	pace := poll.Pacer{Lowest: 50 * time.Millisecond, Highest: time.Second}
	date := func() time.Time { return time.Time{} }
	j.behind.Range(func(_, r any) bool {
		if r := r.(Record); r.Key == key { //nolint:forcetypeassert // Settle stores only records
			_ = j.Settle(ctx, r, 1)
		}
		return true
	})
	for waits := false; ; waits = true {
		began := time.Now()
		entries, last, err := j.Read(ctx, key)
		switch {
		case err == nil:
		case waits && ctx.Err() != nil:
			return InDoubt, e, 0, cause.Of(ctx)
		default:
			return Wait, e, 0, err
		}
		var why string
		switch v, e, why = judge(entries, j.baseURL, want, date()); v {
		case InDoubt:
			err = fmt.Errorf("look for %s in the console of the service at %s, then call Ledger.Adopt, or Ledger.Forget if the endpoint does not exist", cmp.Or(e.ServiceID, "the endpoint"), e.BaseURL)
		case InUse:
			err = j.fail("deploy", e, fmt.Errorf("%w: %s", ErrKeyInUse, why))
		case Resume:
			err = j.Change(ctx, "extend", e, func(now Entry) (Record, error) { return now.lengthen(lease).onlyIf(now.Open()) })
		case Wait:
			if !waits {
				date = begins(ctx, e)
				continue
			}
			next, _ := pace.Next(ctx, time.Since(began), 0, 0)
			if ended := poll.Sleep(ctx, next); ended != nil {
				return InDoubt, e, 0, fmt.Errorf("waiting for its outcome: %w", ended)
			}
			continue
		}
		return v, e, last, err
	}
}

// Claim appends the record of an intent, right before the create is sent. It sets At and SettleBy, by
// the wall clock: no attempt may be sent after SettleBy. If its Seq is taken by another record, ok is
// false. After an error of the store the record may be stored. In that case Claim tries once to
// record that the create was refused.
func (j *Journal) Claim(ctx context.Context, r *Record) (ok bool, err error) {
	r.At = WallClock()
	r.SettleBy = r.At.Add(SettleLimit)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(r.SettleBy) {
		r.SettleBy = deadline.Round(0).UTC()
	}
	switch err = j.append(ctx, *r); {
	case err == nil:
		return true, nil
	case errors.Is(err, fs.ErrExist):
		return false, nil
	}
	_ = j.Settle(ctx, Record{Key: r.Key, Seq: r.Seq, Intent: r.Intent, Event: Refused}, 1)
	return false, j.fail("append intended", Entry{Key: r.Key, Intent: r.Intent}, err)
}
