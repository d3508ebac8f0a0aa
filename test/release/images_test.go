package release

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// image is what a Dockerfile says.
type image struct {
	from    []string    // of each stage
	runs    []string    // shell commands of the first stage
	copies  [][2]string // into the last stage, from the sources or from /out of the first
	volumes []string
	start   []string // the program and its options
}

// readDockerfile reads the instructions that ours have, and takes no others: what it does not
// understand would go untried.
func readDockerfile(t *testing.T, daemon string) (im image) {
	t.Helper()
	b, err := os.ReadFile("../../packaging/docker/Dockerfile." + daemon)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(b), "\n") {
		name, rest, _ := strings.Cut(line, " ")
		words := strings.Fields(rest)
		var list []string
		switch name {
		case "", "#", "WORKDIR", "EXPOSE":
		case "FROM":
			im.from = append(im.from, words[0])
		case "RUN":
			im.runs = append(im.runs, rest)
		case "COPY":
			if from, is := strings.CutPrefix(words[0], "--from="); is && from == "build" {
				words = words[1:]
			} else if len(im.from) == 1 {
				continue // the sources
			}
			im.copies = append(im.copies, [2]string{words[0], words[1]})
		case "VOLUME":
			err = json.Unmarshal([]byte(rest), &im.volumes)
		case "ENTRYPOINT", "CMD":
			err = json.Unmarshal([]byte(rest), &list)
			im.start = append(im.start, list...)
		default:
			t.Fatalf("Dockerfile.%s: unknown: %s", daemon, line)
		}
		if err != nil {
			t.Fatalf("Dockerfile.%s: %s: %v", daemon, line, err)
		}
	}
	if len(im.from) != 2 || len(im.start) == 0 || len(im.volumes) == 0 {
		t.Fatalf("Dockerfile.%s: %+v", daemon, im)
	}
	return im
}

// lay lays out the files of an image, and its volumes where they are new. The programs are those of
// the tarball, which are built alike; with -all they are built as the file says.
func (im image) lay(t *testing.T, programs, volumes string) (files string) {
	t.Helper()
	files = t.TempDir()
	if *all {
		programs = im.build(t)
	}
	for _, c := range im.copies {
		from, to := filepath.Join("../..", c[0]), filepath.Join(files, c[1])
		if c[0] == "/out/" {
			for _, p := range im.programs() {
				install(t, filepath.Join(programs, p), filepath.Join(to, p), 0o755)
			}
			continue
		}
		install(t, from, to, 0o644)
	}
	for _, v := range im.volumes {
		if err := os.MkdirAll(filepath.Join(volumes, strings.ReplaceAll(v, "/", "_")), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// programs are those that the image has.
func (im image) programs() (list []string) {
	for _, word := range strings.Fields(strings.Join(im.runs, " ")) {
		if p, is := strings.CutPrefix(word, "./cmd/"); is {
			list = append(list, p)
		}
	}
	return list
}

// build runs the commands of the first stage, on this machine.
func (im image) build(t *testing.T) (out string) {
	t.Helper()
	out = t.TempDir()
	for _, r := range im.runs {
		run(t, "sh", "-c", "cd ../.. && "+strings.ReplaceAll(r, " /out/ ", " "+out+"/ "))
	}
	return out
}

func install(t *testing.T, from, to string, mode os.FileMode) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o755)
	}
	if err == nil {
		err = os.WriteFile(to, b, mode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// images does by hand what the Dockerfiles say, and runs what they start, each in
// a machine of its own on one network: a minion comes, is accepted and answers, both end in order
// when they are asked to, and what they are is in their volumes.
func images(t *testing.T, tarball string) {
	if err := mayUnshare(); err != nil {
		t.Skipf("no image is run: no machine can be made: %v", err)
	}
	unpacked := t.TempDir()
	run(t, "tar", "-C", unpacked, "--strip-components=1", "-xf", tarball)
	programs := filepath.Join(unpacked, "bin")

	im, kept := readDockerfile(t, "master"), t.TempDir()
	files := im.lay(t, programs, kept)
	master := boot(t, files, kept, nil, im.start...)
	master.until("salt-key -L", "Unaccepted Keys:")

	minionImage, minionKept := readDockerfile(t, "minion"), t.TempDir()
	minionFiles := minionImage.lay(t, programs, minionKept)
	keep(t, minionFiles, "etc/hostname", "web1\n") // as a container gets these two
	keep(t, minionFiles, "etc/hosts", "127.0.0.1 localhost salt\n127.0.0.2 web1\n")
	minion := boot(t, minionFiles, minionKept, master, minionImage.start...)
	master.until("salt-key -l un", "web1")
	master.sh("salt-key -y -a web1")
	master.until("salt web1 test.ping", "True")
	minion.sh("salt-call test.ping")
	if code := minion.stop(); code != 0 {
		t.Errorf("the minion ended with %d", code)
	}
	key := master.sh("salt-key -F master")
	if code := master.stop(); code != 0 {
		t.Errorf("the master ended with %d", code)
	}

	master = boot(t, files, kept, nil, im.start...) // another container, with the same volumes
	master.until("salt-key -l acc", "web1")
	if again := master.sh("salt-key -F master"); again != key {
		t.Errorf("a new container is another master: %s, not %s", again, key)
	}
	if _, err := os.Stat(filepath.Join(minionKept, "_etc_salt/pki/minion/minion.pem")); err != nil {
		t.Error(err)
	}
}
