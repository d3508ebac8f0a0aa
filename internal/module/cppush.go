package module

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target/fnmatch"
)

// cpPush sends a file to the master.
func cpPush(ctx context.Context, c *function.Call) (any, error) {
	source := c.String("path")
	if !c.Bool("keep_symlinks") {
		var err error
		if source, err = filepath.EvalSymlinks(source); err != nil {
			return nil, err
		}
	}
	if err := pushFile(ctx, c, source, c.String("upload_path")); err != nil {
		return nil, err
	}
	if c.Bool("remove_source") {
		return done(os.Remove(c.String("path")))
	}
	return true, nil
}

// maxPushed limits how many files cp.push_dir sends: the master stores no more of one minion.
const maxPushed = 1000

// cpPushDir sends the files below a directory whose names match the glob to the master.
func cpPushDir(ctx context.Context, c *function.Call) (any, error) {
	dir := c.String("path")
	var names []string
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		if glob := c.String("glob"); glob == "" || fnmatch.Match(glob, e.Name()) {
			names = append(names, name)
		}
		if len(names) > maxPushed {
			return fmt.Errorf("%s has more than %s", dir, salt.Count(maxPushed, "file"))
		}
		return nil
	})
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("there is no such file below %s", dir)
	}
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		upload := ""
		if to := c.String("upload_path"); to != "" {
			below, _ := filepath.Rel(dir, name) // it is below dir
			upload = filepath.Join(to, below)
		}
		if err := pushFile(ctx, c, name, upload); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return true, nil
}

// pushFile sends one file to the master, which stores it under its path, or under upload.
func pushFile(ctx context.Context, c *function.Call, name, upload string) error {
	push := services(c.Host).Push
	if push == nil {
		return function.Unavailable("connection to a master")
	}
	if upload == "" {
		upload = name
	}
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() { // opening a pipe would wait for its writer
		return errors.New(name + " is not a file")
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return push(ctx, strings.TrimPrefix(filepath.Clean("/"+upload), "/"), f)
}
