NAME = "ended.txt"
