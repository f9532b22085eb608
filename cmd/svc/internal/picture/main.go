// Command picture runs a session of svc on a pseudo-terminal, against a fake of the service, and
// writes what the terminal shows as an SVG. In the folder cmd/svc:
//
//	go run ./internal/picture ../../docs/svc.svg
package main

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"html"
	"io"
	"log"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/creack/pty"

	"example.com/svc/svctest"
)

// session lists the command lines that the picture shows, in order.
var session = []string{
	"svc deploy --name chat --image registry.example/chat:3 --key chat --lease 8h",
	"svc ls",
	"svc doctor",
}

const columns = 120

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: picture FILE.svg")
	}
	dir, err := os.MkdirTemp("", "picture")
	if err == nil {
		err = draw(context.Background(), os.Args[1], dir)
		err = errors.Join(err, os.RemoveAll(dir))
	}
	if err != nil {
		log.Fatal(err)
	}
}

func draw(ctx context.Context, file, dir string) error {
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", filepath.Join(dir, "svc"), "example.com/svc/cmd/svc")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	srv := svctest.NewServer(svctest.WithDeployTime(2*time.Second), svctest.WithFlavors(
		svctest.Flavor{ID: "l40s-1", DisplayName: "L40S 48GB", CUDA: "12.4", Region: "other", USDPrice: 0.86, Stock: 4, MaxGPU: 8},
		svctest.Flavor{ID: "h100-1", DisplayName: "H100 80GB", CUDA: "12.8", Region: "other", USDPrice: 2.49, Stock: 0, MaxGPU: 8},
	))
	defer srv.Close()
	target, err := url.Parse(srv.URL())
	if err != nil {
		return err
	}
	secure := httptest.NewTLSServer(httputil.NewSingleHostReverseProxy(target))
	defer secure.Close()
	cert := filepath.Join(dir, "cert.pem")
	block := &pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}
	if err := os.WriteFile(cert, pem.EncodeToMemory(block), 0o600); err != nil {
		return err
	}
	env := []string{
		"PATH=" + dir + ":/usr/bin:/bin", "HOME=" + dir, "TERM=xterm", "SSL_CERT_FILE=" + cert, "TZ=UTC",
		"SVC_BASE_URL=" + secure.URL, "SVC_INFERENCE_URL=" + secure.URL, "SVC_API_TOKEN=" + srv.Token(),
	}
	var screen []string
	for _, line := range session {
		shown, err := run(ctx, line, env)
		if err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
		screen = append(screen, "$ "+line)
		for _, text := range shown {
			screen = append(screen, anonymous(text, dir))
		}
		screen = append(screen, "")
	}
	return os.WriteFile(file, svg(screen[:len(screen)-1]), 0o666)
}

// run runs a command line on a pseudo-terminal and returns what it shows at the end.
func run(ctx context.Context, line string, env []string) ([]string, error) {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", line)
	cmd.Env = env
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 50, Cols: columns})
	if err != nil {
		return nil, err
	}
	defer terminal.Close()
	text, err := io.ReadAll(terminal)
	if err != nil && !errors.Is(err, syscall.EIO) { // EIO: the program has ended
		return nil, err
	}
	return display(string(text)), cmd.Wait()
}

var control = regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]`)

// display is what a terminal shows after a text: a carriage return writes over the line.
func display(text string) (lines []string) {
	for line := range strings.SplitSeq(control.ReplaceAllString(text, ""), "\n") {
		var shown []rune
		column := 0
		for _, r := range line {
			switch {
			case r == '\r':
				column = 0
			case column < len(shown):
				shown[column] = r
				column++
			default:
				shown = append(shown, r)
				column++
			}
		}
		if text := strings.TrimRight(string(shown), " "); text != "" {
			lines = append(lines, text)
		}
	}
	return lines
}

// anonymous replaces what is of this machine: the address of the fake, and the folder. What comes
// after it in a table stays in its column.
func anonymous(line, dir string) string {
	line = regexp.MustCompile(`127\.0\.0\.1:\d+`).ReplaceAllStringFunc(line, func(old string) string {
		return "api.gpu.example" + strings.Repeat(" ", max(0, len(old)-15))
	})
	before, after, found := strings.Cut(line, dir)
	if !found {
		return line
	}
	if cell, rest, more := strings.Cut(after, "  "); more {
		after = cell + strings.Repeat(" ", len(dir)-1) + "  " + rest
	}
	return before + "~" + after
}

func svg(lines []string) []byte {
	const charWidth, lineHeight, margin = 8.0, 19, 18
	width, height := columns*charWidth+2*margin, len(lines)*lineHeight+2*margin
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %d" role="img" aria-label="A session of svc: deploy, ls and doctor">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" rx="8" fill="#16181d"/>`+"\n")
	fmt.Fprintf(&b, `<g font-family="ui-monospace,Menlo,Consolas,monospace" font-size="13" fill="#d6dae1" xml:space="preserve">`+"\n")
	for i, line := range lines {
		if line == "" {
			continue
		}
		style := ""
		if strings.HasPrefix(line, "$ ") {
			style = ` fill="#8fd694" font-weight="bold"`
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" textLength="%.0f"%s>%s</text>`+"\n",
			margin, margin+(i+1)*lineHeight-5, charWidth*float64(len([]rune(line))), style, html.EscapeString(line))
	}
	b.WriteString("</g>\n</svg>\n")
	return []byte(b.String())
}
