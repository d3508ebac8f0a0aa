package journal

// Doubt marks messages that were sent as possibly not stored.
func (j *Journal) Doubt() { j.writer.doubt() }
