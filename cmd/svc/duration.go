package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// days is the value of a flag that is a duration, and may also be in days.
type days time.Duration

func (d *days) String() string {
	if *d == 0 {
		return "" // the help says what the default means
	}
	return time.Duration(*d).String()
}

// Type is the name of the value in the help.
func (*days) Type() string { return "duration" }

// Set reads a duration.
func (d *days) Set(text string) error {
	parsed, err := parseDays(text)
	if err != nil {
		return errors.New("must be a duration, such as 90s, 8h or 2d")
	}
	*d = days(parsed)
	return nil
}

// parseDays reads a duration that may also be in days, such as 90d.
func parseDays(text string) (time.Duration, error) {
	if n, ok := strings.CutSuffix(text, "d"); ok {
		days, err := strconv.ParseUint(n, 10, 16)
		if err != nil {
			return 0, fmt.Errorf("%q is not a duration, such as 8h or 90d", text)
		}
		return time.Duration(days) * 24 * time.Hour, nil
	}
	return time.ParseDuration(text)
}
