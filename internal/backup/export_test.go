package backup

// Plan returns the names that the streams of a backup get, and those that are left out.
func Plan(m *Manifest, to Target) (names, left []string, err error) {
	moves, left, err := m.plan(to)
	for _, one := range moves {
		names = append(names, one.to.Stream())
	}
	return names, left, err
}
