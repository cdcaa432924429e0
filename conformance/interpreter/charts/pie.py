import matplotlib.pyplot as plt

plt.pie([1, 1, 2], labels=["one", "other", "rest"])
plt.title("Parts")
plt.show()
