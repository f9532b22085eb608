package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.com/svc"
	"example.com/svc/internal/lazy"
)

// fileView is a file record in a document.
type fileView struct {
	FileID    string `json:"file_id"`
	Name      string `json:"name"`
	Purpose   string `json:"purpose"`
	CreatedAt string `json:"created_at"`                  // RFC 3339; empty if not known
	Bytes     *int64 `json:"bytes" jsonschema:"nullable"` // size of a public file; null: the service does not say it
}

func newFileView(f svc.File) fileView {
	return fileView{FileID: f.ID, Name: f.FileName, Purpose: string(f.Purpose), CreatedAt: stamp(f.CreatedAt.Time)}
}

// filesView lists file records.
type filesView struct {
	outcome
	Files []fileView `json:"files"`
}

func emptyFiles() view { return &filesView{Files: []fileView{}} }

func (v *filesView) table() table {
	t := table{header: []string{"ID", "CREATED", "PURPOSE", "BYTES", "NAME"}}
	for _, f := range v.Files {
		bytes := "-"
		if f.Bytes != nil {
			bytes = fmt.Sprint(*f.Bytes)
		}
		t.rows = append(t.rows, []string{f.FileID, dash(f.CreatedAt), dash(f.Purpose), bytes, dash(f.Name)})
	}
	return t
}

func (v *filesView) names() (ids []string) {
	for _, f := range v.Files {
		ids = append(ids, f.FileID)
	}
	return ids
}

func (t *tool) filesGroup() *cobra.Command {
	g := group("files", "upload and download files")
	for _, c := range []*command{t.uploadCommand(), t.downloadCommand(), t.filesLsCommand(), t.rmCommand(), t.linkCommand()} {
		c.client = needsClient
		if c.advise == nil {
			c.advise = func(err error) []string {
				refused, ok := errors.AsType[*svc.Error](err)
				switch {
				case !ok || !isNotFound(err) || noRoute(err):
					return nil
				case ofStorage(refused):
					return []string{"The service has the record, and its storage has no contents: nothing was uploaded, or they are deleted."}
				}
				return []string{"Check the ID: the service has no such file, or nothing was uploaded for it. " + t.checkPath()}
			}
		}
		t.add(g, c)
	}
	return g
}

func (t *tool) filesLsCommand() *command {
	var public bool
	c := &command{
		Command: &cobra.Command{Use: "ls", Short: "list files", Example: "  svc files ls -o name\n  svc files ls --public"},
		empty:   emptyFiles,
	}
	c.Flags().BoolVar(&public, "public", false, "the public files, in place of those of the account")
	c.run = func(ctx context.Context, _ []string) (view, error) {
		v := &filesView{Files: []fileView{}}
		if !public {
			files, err := t.client.Files.List(ctx)
			for _, f := range files {
				v.Files = append(v.Files, newFileView(f))
			}
			return v, err
		}
		files, err := t.client.Files.ListPublic(ctx)
		for _, f := range files {
			one, n := newFileView(f.File), int64(f.Bytes)
			one.Bytes = &n
			v.Files = append(v.Files, one)
		}
		return v, err
	}
	return c
}

// uploadView is the view of upload.
type uploadView struct {
	outcome
	FileID string `json:"file_id"` // empty if there is no record, or its ID is not known
	Name   string `json:"name"`    // name of the record; empty if it is not known
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"` // SHA-256 of the contents, in hexadecimal; empty if they were not uploaded
}

func (v *uploadView) table() table { return table{rows: lines(v.names())} }

// names has the ID only after an upload that succeeded.
func (v *uploadView) names() []string {
	if v.SHA256 == "" {
		return nil
	}
	return []string{v.FileID}
}

func lines(texts []string) (rows [][]string) {
	for _, text := range texts {
		rows = append(rows, []string{text})
	}
	return rows
}

const uploadHelp = `Uploads a file, or what it reads from standard input, and prints the ID of its record. The
SHA-256 of the contents is written to standard error, and is in the document of -o json.

In a pipeline, if the producer fails, what it has written so far is uploaded as if it were all. Write
"set -o pipefail" before the pipeline, and delete the file after a failure.

If the contents could not be sent, the record stays: --id ID uploads to it again. If the response to
the request for a record is lost, a record may exist, and its ID is not known: then svc looks for its
name, and says what to do. The exit code is 1, and error_kind of -o json is outcome_unknown.`

// upload is one upload.
type upload struct {
	path, name, purpose, contentType string
	id                               once
	allowEmpty                       bool
	began                            time.Time // when the record was registered
}

func (t *tool) uploadCommand() *command {
	u := &upload{}
	c := &command{
		Command: &cobra.Command{
			Use: "upload FILE|-", Short: "upload a file; prints its ID", Long: uploadHelp, Args: cobra.ExactArgs(1),
			Example: "  svc files upload data.jsonl\n  set -o pipefail; produce | svc files upload --name data.jsonl -",
			ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
				return nil, cobra.ShellCompDirectiveDefault // files
			},
		},
		empty: func() view { return &uploadView{} },
	}
	f := c.Flags()
	f.StringVar(&u.name, "name", "", "name of the record; default: the name of the file")
	f.StringVar(&u.purpose, "purpose", string(svc.FilePurposeFineTune), "purpose of the file")
	f.Var(&u.id, "id", "ID of a record that exists: replace its contents")
	f.StringVar(&u.contentType, "content-type", "", "Content-Type of the contents; default: none is sent")
	f.BoolVar(&u.allowEmpty, "allow-empty", false, "upload a file although it is empty")
	c.onBegin = func(call svc.Call) {
		if call.Method == http.MethodPut {
			t.note(func(f *facts) { f.Uploading, f.UploadTo = "", call.ID })
		}
	}
	c.advise = func(err error) []string { return t.uploadAdvice(err, u) }
	c.run = func(ctx context.Context, args []string) (view, error) {
		u.path = args[0]
		if u.id.text != "" && (c.Flags().Changed("name") || c.Flags().Changed("purpose")) {
			return nil, usageError{errors.New("--name and --purpose are for a new record: --id replaces the contents of one, and nothing else")}
		}
		if u.path == "-" && u.name == "" && u.id.text == "" {
			return nil, usageError{errors.New("standard input has no name: set --name")}
		}
		if u.name == "" && u.id.text == "" {
			u.name = filepath.Base(u.path)
		}
		v, err := t.upload(ctx, u)
		if err == nil {
			t.talk.say("uploaded %s, SHA-256 %s", size(v.Bytes), v.SHA256)
		}
		return v, err
	}
	return c
}

func (t *tool) upload(ctx context.Context, u *upload) (*uploadView, error) {
	v := &uploadView{Name: u.name, FileID: u.id.text}
	t.note(func(*facts) {
		t.partial = func() view { return &uploadView{Name: u.name, FileID: cmp.Or(t.known.UploadTo, u.id.text)} }
	})
	body, stop, err := u.open(ctx, t.stdin)
	if err != nil {
		return v, err
	}
	defer stop()
	opts := svc.UploadOptions{ContentType: u.contentType, AllowEmpty: u.allowEmpty, RefuseEmpty: !u.allowEmpty, Progress: t.talk.transfer("uploading " + printable(cmp.Or(u.name, u.id.text)))}
	var result *svc.UploadResult
	if u.id.text != "" {
		result, err = t.client.Files.Replace(ctx, u.id.text, body, &opts)
	} else {
		t.note(func(f *facts) { f.Uploading = u.name })
		u.began = time.Now()
		result, err = t.client.Files.Upload(ctx, svc.UploadRequest{
			FileName: u.name, Purpose: svc.FilePurpose(u.purpose), Body: body, UploadOptions: opts,
		})
	}
	t.note(func(f *facts) { f.Uploading, f.UploadTo = "", "" })
	t.talk.endLine()
	if failed, ok := errors.AsType[*svc.UploadError](err); ok && failed.FileID != "" {
		v.FileID = failed.FileID
	}
	if err != nil {
		return v, err
	}
	v.FileID, v.Bytes, v.SHA256 = result.FileID, result.Bytes, result.SHA256
	if u.id.text != "" {
		if record, err := t.client.Files.Get(ctx, u.id.text, svc.WithMaxAttempts(1)); err == nil {
			v.Name = record.FileName
		}
	}
	return v, nil
}

// open returns the contents.
func (u *upload) open(ctx context.Context, stdin io.Reader) (body io.Reader, stop func(), err error) {
	if u.path == "-" {
		return stdin, func() {}, nil
	}
	f, err := open(ctx, u.path)
	if err != nil {
		return nil, nil, badInput(err)
	}
	if info, err := f.Stat(); err == nil && info.IsDir() {
		_ = f.Close()
		return nil, nil, usageError{fmt.Errorf("%s is a folder: give the name of a file", u.path)}
	}
	return f, func() { _ = f.Close() }, nil
}

// uploadAdvice returns how to continue after a failure. If a record exists, the next upload uses it.
func (t *tool) uploadAdvice(err error, u *upload) []string {
	failed, ok := errors.AsType[*svc.UploadError](err)
	switch {
	case !ok || failed.Stage == svc.UploadStageBody:
		return nil // nothing was sent
	case failed.Stage == svc.UploadStagePut && failed.Link == "" && isNotFound(err):
		return []string{fmt.Sprintf("There is no record %s. Without --id, a new one is made.", printable(failed.FileID))}
	case failed.FileID != "":
		return []string{"The record exists. To upload to it again: " + t.uploadTo(failed.FileID, u)}
	case errors.Is(err, svc.ErrOutcomeUnknown):
		return t.lostRecord(failed.FileName, u)
	}
	return nil
}

// uploadTo returns a command line that uploads the same to a record.
func (t *tool) uploadTo(id string, u *upload) string {
	form, texts := "files upload", []any{id, u.path}
	if u.allowEmpty {
		form += " --allow-empty"
	}
	if u.contentType != "" {
		form, texts = form+" --content-type %s", append([]any{u.contentType}, texts...)
	}
	return t.cmd(form+" --id %s %s", texts...)
}

// lostRecord returns what to do when the outcome of the register call is not known. The list of
// files shows whether it made a record: one that was created since then, by the service's clock.
func (t *tool) lostRecord(name string, u *upload) []string {
	if t.givesUp() {
		return []string{fmt.Sprintf("A record named %q may exist now, with or without its contents. Before you upload again: %s", name, t.cmd("files ls"))}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), 10*time.Second)
	defer cancel()
	var response svc.Response
	files, err := t.client.Files.List(ctx, svc.WithResponse(&response))
	if err != nil {
		return []string{fmt.Sprintf("A record named %q may exist now. The list of files cannot be read: %s", name, plainText(err)), "Before you upload again: " + t.cmd("files ls")}
	}
	began := time.Time{} // by the service's clock, and less than clockMargin too early
	if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		began = date.Add(-time.Since(u.began))
	}
	files = slices.DeleteFunc(files, func(f svc.File) bool {
		return f.FileName != name || !f.CreatedAt.IsZero() && f.CreatedAt.Before(began.Add(-clockMargin))
	})
	if len(files) == 0 {
		return []string{fmt.Sprintf("No record named %q was created by this command: you can repeat the upload.", name)}
	}
	slices.Reverse(files) // the service may list those of the same second from old to new
	slices.SortStableFunc(files, func(a, b svc.File) int { return b.CreatedAt.Compare(a.CreatedAt.Time) })
	var shown []string
	for _, f := range files {
		shown = append(shown, fmt.Sprintf("%s (%s)", printable(f.ID), cmp.Or(stamp(f.CreatedAt.Time), "created at a time that is not known")))
	}
	return []string{
		fmt.Sprintf("Records named %q that may be of this upload, by their time, the newest first: %s.", name, strings.Join(shown, ", ")),
		fmt.Sprintf("To upload to the one that no other upload made, since its contents are replaced: %s", t.uploadTo("ID", u)),
	}
}

// clockMargin is how exactly the time of a file record is known: times have whole seconds, and the service may have
// several clocks.
const clockMargin = 3 * time.Second

var plainWord = lazy.Regexp(`^[\w@%+=:,./-]+$`)

// shellWord quotes a word for a shell if it needs quotes.
func shellWord(word string) string {
	if plainWord().MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(printable(word), "'", `'\''`) + "'"
}

// downloadView is the view of download.
type downloadView struct {
	outcome
	FileID string `json:"file_id"`
	Path   string `json:"path"` // where the contents were written; empty if they were not
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"` // SHA-256 of the contents, in hexadecimal; empty if they were not downloaded
}

func (v *downloadView) table() table { return line(v.Path) }

// names has the ID only after a download that succeeded.
func (v *downloadView) names() []string {
	if v.SHA256 == "" {
		return nil
	}
	return []string{v.FileID}
}

const downloadHelp = `Downloads a file and prints its path. The default for FILE is the name of the record, in the
current folder. With -, the contents go to standard output. If its reader goes away, as head does, the
download stops, and ends with 0, or with 1 if --sha256 is given. A file that exists is overwritten
only with --force, and only when the whole download has succeeded. Of a symbolic link, the file that it
leads to is overwritten, or made. What is no regular file, such as a device or a pipe, is refused: - is
standard output. If this program is killed (SIGKILL), a folder .svc-download-* stays beside the file: no
later download uses it, and you can remove it.`

// download is one download.
type download struct {
	id, file, sum string
	force         bool
}

func (t *tool) downloadCommand() *command {
	d := &download{}
	c := &command{
		Command: &cobra.Command{
			Use: "download ID [FILE|-]", Short: "download a file; prints its path", Long: downloadHelp, Args: cobra.RangeArgs(1, 2),
			Example: "  svc files download file-1 data.jsonl --sha256 \"$sum\"\n  svc files download file-1 - | head",
		},
		empty: func() view { return &downloadView{} },
	}
	c.Flags().BoolVar(&d.force, "force", false, "overwrite a file that exists")
	c.Flags().StringVar(&d.sum, "sha256", "", "SHA-256 that the contents must have, in hexadecimal")
	c.run = func(ctx context.Context, args []string) (view, error) {
		d.sum = strings.ToLower(d.sum)
		if d.sum != "" && (len(d.sum) != 64 || strings.Trim(d.sum, "0123456789abcdef") != "") {
			return nil, usageError{errors.New("--sha256 must have 64 hexadecimal digits")}
		}
		d.id = args[0]
		if len(args) == 2 {
			d.file = args[1]
		}
		if d.file == "-" {
			return nil, t.toStdout(ctx, d.id, d.sum)
		}
		return t.toFile(ctx, d)
	}
	return c
}

// toFile writes the contents to a file, by default to one with the name of the record.
func (t *tool) toFile(ctx context.Context, d *download) (*downloadView, error) {
	v := &downloadView{FileID: d.id}
	t.note(func(*facts) { t.partial = func() view { return &downloadView{FileID: d.id} } })
	file := d.file
	if file == "" {
		record, err := t.client.Files.Get(ctx, d.id)
		if err != nil {
			return v, err
		}
		if file, err = localName(record.FileName); err != nil {
			return v, err
		}
	}
	got, err := t.fetch(file, d.force, d.sum, func(to string, opts *svc.DownloadOptions) (int64, error) {
		return t.client.Files.DownloadFile(ctx, d.id, to, opts)
	})
	if refused, ok := errors.AsType[irregularError](err); ok && refused.text != notAFile {
		err = fmt.Errorf("%w. With - in place of FILE, the contents go to standard output", err)
	}
	if err != nil {
		return v, err
	}
	v.Path, v.Bytes, v.SHA256 = file, got.bytes, got.sha256
	t.talk.say("downloaded %s, SHA-256 %s", size(v.Bytes), v.SHA256)
	return v, nil
}

// localName returns the name of a file from the name of a record, which anybody may have
// chosen.
func localName(name string) (string, error) {
	if base := filepath.Base(name); base == name && filepath.IsLocal(name) && name != "." && printable(name) == name {
		return name, nil
	}
	return "", usageError{fmt.Errorf("the record name %q cannot be the name of a file: give FILE", name)}
}

// toStdout writes the contents to standard output. There is no document then.
func (t *tool) toStdout(ctx context.Context, id, want string) error {
	if f := t.flags.output.value; f == "json" || f == "yaml" {
		return usageError{fmt.Errorf("the contents go to standard output, so -o %s cannot be used", f)}
	}
	out := &contents{output: t.stdout, hash: sha256.New()}
	show := t.talk.transfer("downloading " + printable(id))
	opts := &svc.DownloadOptions{Progress: func(done, total int64) {
		out.total = total
		show(done, total)
	}}
	n, err := t.client.Files.Download(ctx, id, out, opts)
	t.talk.endLine()
	if errors.Is(err, errReaderGone) {
		return t.readerGone(out, want)
	}
	if err != nil {
		return err
	}
	got := fetched{n, sum(out.hash)}
	t.talk.say("downloaded %s, SHA-256 %s", size(n), got.sha256)
	return got.check(want)
}

// contents writes what is downloaded to standard output.
type contents struct {
	output         *output
	hash           hash.Hash
	written, total int64 // total is that of the file; 0 or less if not known
}

// Write writes b. A reader that has gone away ends the download.
func (c *contents) Write(b []byte) (int, error) {
	n, err := c.output.put(b)
	c.hash.Write(b[:n])
	c.written += int64(n)
	return n, err
}

// readerGone says how much of a file was written before the reader of standard output went away, as with "| head". It is a
// failure only if the SHA-256 was to be checked.
func (t *tool) readerGone(c *contents, want string) error {
	of := ""
	if c.total > 0 {
		of = " of " + size(c.total)
	}
	text := fmt.Sprintf("%v after %s%s: the rest was not downloaded", errReaderGone, size(c.written), of)
	if want != "" {
		return fmt.Errorf("%s, and the SHA-256 was not checked", text)
	}
	t.talk.say("%s", text)
	return nil
}

// rmView is the view of rm.
type rmView struct {
	outcome
	Files []rmFile `json:"files"`
}

// rmFile is a file that was to be deleted.
type rmFile struct {
	FileID  string `json:"file_id"`
	Deleted bool   `json:"deleted"`
	Error   string `json:"error"` // why it is not deleted; empty if it is

	missing bool
}

func (v *rmView) table() table {
	t := table{header: []string{"ID", "RESULT"}}
	for _, f := range v.Files {
		result := "deleted"
		switch {
		case f.missing:
			result = "not found"
		case !f.Deleted:
			result = "NOT deleted"
		}
		t.rows = append(t.rows, []string{f.FileID, result})
	}
	return t
}

func (v *rmView) names() (ids []string) {
	for _, f := range v.Files {
		if f.Deleted {
			ids = append(ids, f.FileID)
		}
	}
	return ids
}

func (t *tool) rmCommand() *command {
	return &command{
		Command: &cobra.Command{Use: "rm ID...", SuggestFor: []string{"delete", "remove"}, Short: "delete files", Args: cobra.MinimumNArgs(1), Example: "  svc files rm file-1 file-2"},
		empty:   func() view { return &rmView{Files: []rmFile{}} },
		run: func(ctx context.Context, args []string) (view, error) {
			v := &rmView{Files: []rmFile{}}
			ids := slices.Compact(slices.Sorted(slices.Values(args)))
			for _, id := range ids {
				v.Files = append(v.Files, rmFile{FileID: id, Error: "not known to be deleted when the program was ended"})
			}
			t.note(func(*facts) { t.partial = func() view { return &rmView{Files: slices.Clone(v.Files)} } })
			var errs []error
			for i, id := range ids {
				err := t.client.Files.Delete(ctx, id)
				f := rmFile{FileID: id, Deleted: err == nil, missing: isNotFound(err)}
				if err != nil {
					f.Error = plainText(err)
				}
				errs = append(errs, err)
				t.note(func(*facts) { v.Files[i] = f })
			}
			return v, joined(errs)
		},
	}
}

// linkView is the view of link.
type linkView struct {
	outcome
	FileID string `json:"file_id"`
	URL    string `json:"url"` // presigned URL: whoever has it can read the contents, and may be able to replace them
}

func (v *linkView) table() table { return line(v.URL) }

// names has the ID only of a file that has a link.
func (v *linkView) names() []string {
	if v.URL == "" {
		return nil
	}
	return []string{v.FileID}
}

func (t *tool) linkCommand() *command {
	return &command{
		Command: &cobra.Command{
			Use: "link ID", Short: "print a presigned URL of a file", Args: cobra.ExactArgs(1),
			Long: `Prints a presigned URL of the contents. Whoever has it can read the file, and may be able to
replace its contents with a PUT: give it only to those who may do both. The service does not say for
how long it is valid, nor can it be withdrawn.`, Example: "  curl -o data.jsonl \"$(svc files link file-1)\"",
		},
		empty: func() view { return &linkView{} },
		run: func(ctx context.Context, args []string) (view, error) {
			link, err := t.client.Files.PresignedURL(ctx, args[0])
			return &linkView{FileID: args[0], URL: string(link)}, err
		},
	}
}
