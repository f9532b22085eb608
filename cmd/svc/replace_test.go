package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

// TestOnlyRegularFilesAreReplaced: whatever gets its name by a rename refuses all else, before anything is fetched or created.
func TestOnlyRegularFilesAreReplaced(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.srv.AddFile("a", "batch", []byte("contents"))
	job := s.srv.AddJob(svctest.Job{Kind: svctest.JobImage, Outputs: []svctest.JobOutput{{}, {}}})
	outputs := s.must(exitOK, "jobs", "download", job, "pictures", "--kind", "image", "-o", "json").doc(t)["outputs"].([]any)
	second := outputs[1].(map[string]any)["path"].(string) // so that the first one could be fetched
	in := func(name string) string { return filepath.Join(s.env["HOME"], name) }
	for name, make := range map[string]func(file string){
		"pipe":   func(file string) { makeFifo(t, file) },
		"folder": func(file string) { require.NoError(t, os.Mkdir(file, 0o700)) },
		"socket": func(file string) {
			dir, err := os.MkdirTemp("", "") //nolint:usetesting // the path of a socket must be short
			require.NoError(t, err)
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			l, err := net.Listen("unix", filepath.Join(dir, "s"))
			require.NoError(t, err)
			t.Cleanup(func() { _ = l.Close() })
			require.NoError(t, os.Rename(filepath.Join(dir, "s"), file))
		},
		"device": func(file string) {
			if err := exec.Command("mknod", file, "c", "1", "3").Run(); err != nil { // only root may make one
				makeFifo(t, file)
			}
		},
		"loop": func(file string) { require.NoError(t, os.Symlink(filepath.Base(file), file)) },
	} {
		make(in(name))
		require.NoError(t, os.Symlink(name, in(name+"-link")))
		require.NoError(t, os.Remove(in(second)))
		make(in(second))
		for _, file := range []string{name, name + "-link"} {
			before, err := os.Lstat(in(file))
			require.NoError(t, err)
			target, _ := os.Stat(in(file))
			sent := s.srv.RequestCount("*", svctest.RouteAny)
			for _, args := range [][]string{
				{"files", "download", "file-1", file}, {"files", "download", "file-1", file, "--force"},
				{"run", "--name", "n", "--image", "i", "--result", file, "--", "true"},
				{"run", "--nope", "--result", file, "--", "true"},
			} {
				e := s.must(exitUsage, args...)
				require.Regexp(t, file+` is (a folder|not a regular file|a symbolic link that leads to itself)`, e.stderr)
				require.NotContains(t, e.stderr, "--force overwrites", "it would not")
				require.Equal(t, args[0] == "files" && name != "folder" && name != "loop", strings.Contains(e.stderr, "With - in place of FILE"), e.stderr)
			}
			require.Equal(t, sent, s.srv.RequestCount("*", svctest.RouteAny), "nothing was sent")
			after, err := os.Lstat(in(file))
			require.NoError(t, err)
			require.True(t, os.SameFile(before, after) && before.Mode() == after.Mode(), "%s: %v", file, after.Mode())
			if now, _ := os.Stat(in(file)); target != nil {
				require.True(t, os.SameFile(target, now) && target.Mode() == now.Mode(), "%s: %v", file, now.Mode())
			}
		}
		fetched := s.srv.RequestCount("GET", svctest.RouteStorage)
		s.must(exitUsage, "jobs", "download", job, "pictures", "--kind", "image", "--force")
		require.Equal(t, fetched, s.srv.RequestCount("GET", svctest.RouteStorage))
		require.NoError(t, os.Remove(in(second)))
		require.NoError(t, os.WriteFile(in(second), nil, 0o600))
	}
}

// TestOpenFilesAreNotReplaced: behind /dev/stdout may be a regular file, which the process would go on to write to.
func TestOpenFilesAreNotReplaced(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/fd/1"); err != nil {
		t.Skip("this system does not show open files")
	}
	s := newSession(t)
	s.srv.AddFile("a", "batch", []byte("contents"))
	require.NoError(t, os.Symlink("/dev/fd", filepath.Join(s.env["HOME"], "open")))
	require.NoError(t, os.Symlink("/dev/stdout", filepath.Join(s.env["HOME"], "out-link")))
	for _, file := range []string{"/dev/stdout", "/dev/stderr", "/dev/fd/1", "/dev/fd/7", "/proc/self/fd/1", "open/1", "open/../fd/1", "out-link"} {
		for _, to := range []string{"", " >out 7>out", " | cat", " >/dev/null"} {
			e := s.finish(s.shell("set -o pipefail; svc files download file-1 " + file + " --force" + to))
			require.Equal(t, exitUsage, e.code, "%s%s: %s", file, to, e.stderr)
			require.Contains(t, e.stderr, file+" is an open file of a process, and only a regular file is replaced. With - in place of FILE, the contents go to standard output")
		}
		require.Contains(t, s.must(exitUsage, "run", "--name", "n", "--image", "i", "--result", file, "--", "true").stderr, "only a regular file is replaced")
	}
	require.Zero(t, s.srv.RequestCount("*", svctest.RouteAny))
}

// TestLinksStay: the file that a symbolic link leads to is replaced or made, with its temporary file beside it.
func TestLinksStay(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.srv.AddFile("a", "batch", []byte("contents"))
	in := func(name string) string { return s.env["HOME"] + "/" + name } // filepath.Join would remove a folder before ..
	require.NoError(t, os.MkdirAll(in("there/deep"), 0o700))
	require.NoError(t, os.Symlink("there/deep", in("folder")))
	for name, to := range map[string]string{"link": "there/target", "full": in("there/other"), "chain": "link", "up": "folder/../third"} {
		require.NoError(t, os.Symlink(to, in(name)))
	}
	require.NoError(t, os.Chmod(s.env["HOME"], 0o500)) // no temporary file can be made beside the link
	t.Cleanup(func() { _ = os.Chmod(s.env["HOME"], 0o700) })
	for name, target := range map[string]string{"link": "there/target", "full": "there/other", "chain": "there/target", "up": "there/third", "folder/../fourth": "there/fourth"} {
		_ = os.Remove(in(target))
		holds := func(text string) {
			t.Helper()
			got, err := os.ReadFile(in(target))
			require.NoError(t, err)
			require.Contains(t, string(got), text)
			info, err := os.Lstat(in(name))
			require.NoError(t, err)
			require.Equal(t, name != "folder/../fourth", info.Mode()&os.ModeSymlink != 0)
		}
		require.Equal(t, name+"\n", s.must(exitOK, "files", "download", "file-1", name).stdout, "what does not exist is made")
		holds("contents")
		require.Contains(t, s.must(exitUsage, "files", "download", "file-1", name).stderr, name+" exists: --force overwrites it")
		require.NoError(t, os.Chmod(in(target), 0o600))
		s.must(exitOK, "files", "download", "file-1", name, "--force")
		holds("contents")
		info, err := os.Stat(in(target))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode(), "a private file stays one")
		require.NoError(t, os.Truncate(in(target), 0)) // only a result, or an empty file, is replaced by a result
		for range 2 {
			s.must(exitOK, "run", "--name", "n", "--image", "i", "--result", name, "--", "true")
			holds("svc_exit_code")
		}
	}
	left, err := filepath.Glob(in("there/.svc-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}
