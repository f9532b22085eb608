package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"github.com/rivo/uniseg"
	"go.yaml.in/yaml/v3"

	"example.com/svc"
)

// view is the result of a command, in each form of --output. A view is a struct that embeds
// outcome: its JSON form is the document of the command, and is described in schema/.
type view interface {
	base() *outcome
	table() table
	names() []string // the IDs, for "-o name"
}

// outcome is the part that the documents of all commands share.
type outcome struct {
	ExitCode     int    `json:"exit_code"`
	MayBeRunning bool   `json:"may_be_running"` // false only if it is known that no endpoint of the command is running
	ServiceID    string `json:"service_id"`     // empty if not known, or if there is none
	Key          string `json:"key"`            // empty if not known, or if there is none
	*failure
}

// failure is in the document of a command that failed, and in no other.
type failure struct {
	Error      string  `json:"error"`
	ErrorKind  string  `json:"error_kind"`          // see kinds
	RequestID  string  `json:"request_id"`          // the ID that the service gave the failed request; empty if it gave none
	RetryAfter float64 `json:"retry_after_seconds"` // how long the service asked to wait before a retry; 0 if it did not ask

	UnknownCreate *unknownCreate `json:"unknown_create" jsonschema:"nullable"` // the create whose outcome is not known, if the error is about exactly one, whatever the exit code: after 4, and after a failure of adopt, forget, extend or sweep; else null
}

// unknownCreate is a create whose outcome is not known: see "svc adopt" and "svc forget".
type unknownCreate struct {
	Key        string `json:"key"`         // of its entry in the ledger, random without --key; empty if there is no ledger
	Intent     string `json:"intent"`      // the description of the endpoint holds [svc:INTENT]; empty if there is no ledger
	Name       string `json:"name"`        // name of the endpoint
	ForgetFrom string `json:"forget_from"` // RFC 3339: "svc forget" works from then on; empty if not known
}

func (o *outcome) base() *outcome { return o }

// table is the form of a view for a person. Without a header it is plain lines.
type table struct {
	header []string
	rows   [][]string
	text   string // text in place of a table
}

// line is a table of one line, such as an ID or an address.
func line(text string) table {
	if text == "" {
		return table{}
	}
	return table{rows: [][]string{{text}}}
}

// message is the view of a command that has nothing to show but its outcome.
type message struct{ outcome }

func emptyMessage() view { return &message{} }

func (*message) table() table    { return table{} }
func (*message) names() []string { return nil }

// render returns the text of a view in the form that the flags ask for.
func (g *globals) render(v view) (string, error) {
	var b strings.Builder
	switch g.output.value {
	case "json", "yaml":
		text, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return "", err
		}
		if g.output.value == "json" {
			return string(text) + "\n", nil
		}
		return toYAML(text)
	case "name":
		for _, id := range v.names() {
			if id != "" {
				fmt.Fprintln(&b, printable(id))
			}
		}
	default:
		v.table().write(&b, !g.noHeaders)
	}
	return b.String(), nil
}

// toYAML converts JSON into YAML with the same order of fields. JSON is YAML already: only its
// style changes. Each value stays on one line, so that scripts can read lines.
func toYAML(text []byte) (string, error) {
	var escaped strings.Builder
	for _, r := range string(text) {
		if r >= 0x7f && !unicode.IsPrint(r) && r <= 0xffff { // YAML takes it for a line break, or refuses it
			fmt.Fprintf(&escaped, `\u%04x`, r)
		} else {
			escaped.WriteRune(r)
		}
	}
	var node yaml.Node
	if err := yaml.Unmarshal([]byte(escaped.String()), &node); err != nil {
		return "", err
	}
	plain(&node)
	var b strings.Builder
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	err := e.Encode(&node)
	return b.String(), err
}

func plain(n *yaml.Node) {
	switch n.Style = 0; {
	case n.Kind == yaml.ScalarNode && strings.ContainsFunc(n.Value, func(r rune) bool { return !unicode.IsPrint(r) }):
		n.Style = yaml.DoubleQuotedStyle
	case len(n.Content) == 0 && n.Kind != yaml.ScalarNode:
		n.Style = yaml.FlowStyle // [] and {}
	}
	for _, c := range n.Content {
		plain(c)
	}
}

// write writes aligned columns, two spaces apart.
func (t table) write(w io.Writer, headers bool) {
	_, _ = io.WriteString(w, t.text)
	rows := t.rows
	if headers && t.header != nil && len(rows) > 0 {
		rows = append([][]string{t.header}, rows...)
	}
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], uniseg.StringWidth(printable(cell)))
		}
	}
	for _, row := range rows {
		var b strings.Builder
		for i, cell := range row {
			cell = printable(cell)
			b.WriteString(cell + strings.Repeat(" ", widths[i]-uniseg.StringWidth(cell)+2))
		}
		_, _ = fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
}

// printable replaces the characters of s, which is from a service, that could move the cursor or
// change colours.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '\uFFFD'
	}, text)
}

// printableLines is printable for a text that may have several lines.
func printableLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = printable(line)
	}
	return strings.Join(lines, "\n")
}

// dash stands for an empty cell.
func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// short writes a duration in at most two units: 42s, 12m, 3h12m, 2d3h.
func short(d time.Duration) string {
	const hour = time.Hour
	switch {
	case d < 0:
		return "-" + short(-d)
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < day:
		return fmt.Sprintf("%dh%dm", d/hour, d%hour/time.Minute)
	}
	return fmt.Sprintf("%dd%dh", d/day, d%day/hour)
}

// serviceView is the view of commands about one endpoint.
type serviceView struct {
	outcome
	Name       string `json:"name"`               // without a record that was read, it is that of the ledger or of the request; empty if not known
	Status     string `json:"status"`             // of the record that was read last; empty if none was
	Instances  int    `json:"instances"`          // without a record that was read, it is that of the ledger or of the request; 0 if not known
	FlavorID   string `json:"flavor_id"`          // without a record that was read, it is that of the ledger or of the request; empty if not known
	CreatedAt  string `json:"created_at"`         // RFC 3339; empty if not known
	URL        string `json:"url"`                // empty if the endpoint is not available, or --inference-url is not known
	DeleteFrom string `json:"delete_accepted_at"` // RFC 3339: by the ledger, the service has accepted a delete then, whose deletion is not proved; else empty
	Deleted    bool   `json:"deleted"`            // the endpoint is known to be deleted

	age string
}

func emptyService() view { return &serviceView{} }

// read returns the view of a record that was read, and records whether its endpoint may be
// running.
func (t *tool) read(s *svc.InferenceService) view {
	if s != nil {
		t.note(func(f *facts) { f.Running = mayRun(s) })
	}
	return t.service(s)
}

// service returns the view of a record. Without a record it returns nil.
func (t *tool) service(s *svc.InferenceService) view {
	if s == nil {
		return nil
	}
	t.note(func(f *facts) { f.ID, f.Name = s.ServiceID, s.Name })
	return t.shows(s)
}

func (t *tool) shows(s *svc.InferenceService) *serviceView {
	v := &serviceView{
		Name: s.Name, Status: string(s.Status), Instances: int(s.ResourceMetadata.TargetInstanceNumber),
		FlavorID: s.ResourceMetadata.FlavorID, Deleted: s.IsDeleted,
	}
	v.ServiceID = s.ServiceID
	if !s.CreatedAt.IsZero() {
		v.CreatedAt, v.age = s.CreatedAt.UTC().Format(time.RFC3339), short(t.now().Sub(s.CreatedAt.Time))
	}
	if s.Status == svc.InferenceServiceStatusAvailable && !s.IsDeleted {
		v.URL, _ = t.client.InferenceServices.URL(s.ServiceID) // empty without an inference URL
	}
	return v
}

// know adds what is known of the endpoint to the view of a command that has not returned its record: it has failed, or
// was given up. shown returns the view of a record.
func (v *serviceView) know(f facts, _ error, shown func(*svc.InferenceService) *serviceView) {
	switch {
	case v.Status != "":
	case f.Seen != nil && strings.EqualFold(f.Seen.ServiceID, f.ID):
		base := v.outcome
		*v = *shown(f.Seen)
		v.outcome, v.FlavorID = base, cmp.Or(v.FlavorID, f.Flavor)
	default:
		v.Name, v.FlavorID = cmp.Or(v.Name, f.Name), cmp.Or(v.FlavorID, f.Flavor)
		v.Instances = cmp.Or(v.Instances, f.Instances)
	}
	v.Deleted = v.Deleted || f.Deleted
	if !v.Deleted {
		v.DeleteFrom = stamp(f.DeleteFrom)
	}
}

// endpoint returns the view itself, for views that have one.
func (v *serviceView) endpoint() *serviceView { return v }

func (v *serviceView) table() table {
	if v.ServiceID == "" {
		return table{}
	}
	return table{
		header: []string{"ID", "NAME", "STATUS", "INSTANCES", "FLAVOR", "AGE", "URL"},
		rows:   [][]string{{v.ServiceID, dash(v.Name), dash(v.Status), fmt.Sprint(v.Instances), dash(v.FlavorID), dash(v.age), dash(v.URL)}},
	}
}

func (v *serviceView) names() []string {
	if v.ServiceID == "" {
		return nil
	}
	return []string{v.ServiceID}
}
