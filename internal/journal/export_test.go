package journal

// Doubt says that what was sent may not be stored.
func (j *Journal) Doubt() { j.writer.doubt() }
