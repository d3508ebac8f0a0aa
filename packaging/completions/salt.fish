# Completion of Brine's programs for fish. The programs know the words: see '--complete' in
# doc/operating.md.
function __salt_complete
    set -l typed (commandline -opc)
    $typed[1] --complete $typed[2..-1] (commandline -ct | string collect --allow-empty) 2>/dev/null
end
for program in salt salt-api salt-call salt-cp salt-event salt-key salt-master salt-minion salt-run
    complete -c $program -a '(__salt_complete)'
end
