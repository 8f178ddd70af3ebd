"""Every label, annotation, resource name and ConfigMap key koord reads or writes, once, with its parser and writer."""
