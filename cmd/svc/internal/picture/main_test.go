package main

import (
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPicture draws the picture, which shows nothing of this machine, and checks the one in docs/.
func TestPicture(t *testing.T) {
	dir := t.TempDir()
	fresh := filepath.Join(dir, "svc.svg")
	require.NoError(t, draw(t.Context(), fresh, dir))
	host, err := os.Hostname()
	require.NoError(t, err)
	var doctor []string // what svc doctor says in both pictures, without its numbers
	for _, file := range []string{fresh, "../../../../docs/svc.svg"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NotRegexp(t, `127\.0\.0\.1|/tmp|/home|/root|svctest-token`, string(text))
		require.NotContains(t, string(text), host)
		for _, command := range session {
			require.Contains(t, string(text), "$ "+command)
		}
		require.Regexp(t, `svc-1 is available after \d+s`, string(text)) // in real time, on a busy machine
		require.NotContains(t, string(text), "problem")
		_, said, _ := strings.Cut(string(text), "$ svc doctor")
		doctor = append(doctor, strings.Join(strings.Fields(numbers.ReplaceAllString(said, "0")), " "))
		f, err := os.Open(file)
		require.NoError(t, err)
		d := xml.NewDecoder(f)
		for err == nil {
			_, err = d.Token()
		}
		require.ErrorIs(t, err, io.EOF)
		require.NoError(t, f.Close())
	}
	require.Equal(t, doctor[0], doctor[1], "go run ./internal/picture ../../docs/svc.svg")
}

var numbers = regexp.MustCompile(`\d+`)

func TestDisplayWritesOverTheLine(t *testing.T) {
	require.Equal(t, []string{"done", "next"}, display("wait \x1b[2K 12%\r          \rdone\r\nnext\r\n"))
}

func TestAnonymousKeepsTheColumns(t *testing.T) {
	require.Equal(t, "a  https://api.gpu.example  b", anonymous("a  https://127.0.0.1:12345  b", "/d"))
	require.Equal(t, "ok  ~/x     -", anonymous("ok  /d/d/x  -", "/d/d"))
}
