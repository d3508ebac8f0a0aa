package acl

// decideMine decides whether a minion may read entries of the mine. Without the setting
// mine_get every minion may; the master then checks what the owner of each entry allows.
func (r *Rules) decideMine(q *Question, s *Subject) Decision {
	if s.Kind != Peer {
		return refusal("the mine is for minions")
	}
	if why := r.MayTarget(*s, q.Target); why != "" {
		return refusal("%s", why)
	}
	if !r.mineHeld {
		return Decision{Verdict: Allow, Reason: "mine_get is not set: every minion may read what its owner does not keep from it"}
	}
	return r.judge(q, s)
}

// mineGrants reads the rules of mine_get: names of entries.
func (p *parser) mineGrants(a at) []rule {
	var rules []rule
	for item := range p.items(a, "what may be read") {
		if !item.isText() {
			p.fail(item, errNotText(item))
			continue
		}
		rules = append(rules, p.function(item, at{}, rule{scopes: []Scope{Mine}})...)
	}
	return rules
}
